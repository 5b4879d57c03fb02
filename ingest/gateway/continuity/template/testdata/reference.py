"""Writes expected.json: the templates and cases of this folder, rendered by Jinja2 as
transformers sets it up. Needs jinja2 3.1. Run it here after a change."""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 3, 7, 15, 4, 5).strftime(f)

here = pathlib.Path(__file__).parent
expected = {}
for path in sorted(here.glob("*.jinja")):
    template = env.from_string(path.read_text())
    expected[path.stem] = []
    for case in json.loads((here / "cases.json").read_text()):
        given = {"messages": case["messages"], "tools": case["tools"] or None, "documents": None, "add_generation_prompt": True}
        try:
            text = template.render(**given, **case["params"])
        except jinja2.exceptions.TemplateError as fault:
            text = {"error": str(fault)}
        expected[path.stem].append(text)
(here / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
