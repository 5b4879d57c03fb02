// Package openai is what OpenAI's two APIs, Chat Completions and Responses, have in
// common: faults, parameters of sampling, tools and the choice among them, and free text
// that models write as a JSON argument.
package openai
