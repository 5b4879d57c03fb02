"""Make a tiny model that vLLM can serve: random weights, a real tokenizer, Qwen's tags.

    python model.py DIRECTORY

Nothing is fetched. The answers are noise, and that is the point: noise does not come
back from a tokenizer as the ids that were sampled, so whatever passes ids on wrongly is
seen at once. The spread of the weights makes some tokens likely and most not.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTEXT = 8192
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Qwen's tokenizers have these as tokens too, which are not "special": a decoder that
# leaves out special tokens keeps them.
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

TEXT = """
The reader opens a file, looks for the line that is wrong and puts the right one there.
Run the tests again, then say what was found: "expected 3, got 4". Größe, naïve, 文字, 🙂.
def add(a, b):\n    return a + b  # not a - b\n{"name": "read_file", "arguments": {"path": "src/main.py", "lines": [1, 20]}}
# Tools\nYou may call one or more functions to assist with the user query. <tools></tools>
Weather in Paris is sunny with 21 degrees, wind from the north; in Rome it rains a little.
"""

TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- '# Tools\n\n<tools>' }}
    {%- for tool in tools %}{{- '\n' + (tool | tojson) }}{%- endfor %}
    {{- '\n</tools>\n\nCall one so:\n<tool_call>\n{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first and tools %}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- set thought = message.reasoning_content or message.reasoning %}
        {%- if thought %}{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}{%- endif %}
        {{- (message.content or '').lstrip('\n') if thought else message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {%- if not loop.first or (message.content and not message.content.endswith('\n')) %}{{- '\n' }}{%- endif %}
            {{- '<tool_call>\n{"name": ' + (call.function.name | tojson) + ', "arguments": ' }}
            {{- (call.function.arguments if call.function.arguments is string else call.function.arguments | tojson) + '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of some 700 tokens: every byte has an id, so any text does."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=MARKS
    )
    tok.train_from_iterator([TEXT, TEMPLATE] * 3, trainer)
    tok.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE.strip()
    return fast


def main(where: Path) -> None:
    torch.manual_seed(7)
    tok = tokenizer()
    config = Qwen3Config(
        vocab_size=-(-len(tok) // 64) * 64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=64, max_position_embeddings=CONTEXT,
        tie_word_embeddings=False, initializer_range=0.12,
        eos_token_id=tok.eos_token_id, bos_token_id=None, pad_token_id=tok.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():  # rows behind the vocabulary are no tokens, and are never to be sampled
        model.lm_head.weight[len(tok):] = 0
    model.save_pretrained(where, safe_serialization=True)
    tok.save_pretrained(where)
    generation = {"eos_token_id": [tok.eos_token_id], "pad_token_id": tok.pad_token_id, "do_sample": True}
    (where / "generation_config.json").write_text(json.dumps(generation))
    print(f"{len(tok)} tokens, {sum(p.numel() for p in model.parameters())} weights")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
