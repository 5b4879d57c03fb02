// Reads an Arrow IPC stream, cut off in many places, with Apache Arrow for
// JavaScript, and says what it took each piece for.
//
//	node read.js FILE memory|chunks < cuts       a cut is a line: "LENGTH TAIL"
//	node read.js URL fetch|fetch-whole [BODY]    fetches it, with a body by POST
//
// For a cut the first LENGTH bytes of the file are read, and then the bytes that
// TAIL has in hexadecimal. Each line that is printed is "raised", or the number of
// rows and the sum of their token ids.
import { readFileSync } from "node:fs";
import { RecordBatchReader, tableFromIPC } from "apache-arrow";

const [source, way, body] = process.argv.slice(2);

async function* chunks(bytes) {
  for (let at = 0; at < bytes.length; at += 1 << 16) yield bytes.subarray(at, at + (1 << 16));
}

async function table(bytes) {
  return way === "memory" ? tableFromIPC(bytes) : tableFromIPC(await RecordBatchReader.from(chunks(bytes)));
}

function sum(read) {
  let ids = 0;
  for (const row of read.getChild("token_ids") ?? []) for (const id of row) ids += id;
  return `${read.numRows} ${ids}`;
}

async function said(reading) {
  try {
    return sum(await reading());
  } catch {
    return "raised";
  }
}

if (way.startsWith("fetch")) {
  console.log(await said(async () => {
    const response = await fetch(source, body && { method: "POST", body });
    return tableFromIPC(way === "fetch" ? response : await response.arrayBuffer());
  }));
} else {
  const whole = readFileSync(source);
  for (const line of readFileSync(0, "utf8").split("\n").filter((l) => l !== "")) {
    const [length, tail] = line.split(" ");
    const bytes = Buffer.concat([whole.subarray(0, Number(length)), Buffer.from(tail ?? "", "hex")]);
    console.log(await said(() => table(bytes)));
  }
}
