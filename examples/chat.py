"""A chat whose cache is evicted from turn by turn, and never holds more than a budget."""

import echokv

BUDGET = 96  # tokens that each KV head keeps

model, tokenizer = echokv.load_model("smollm2", dtype="float32")
press = echokv.EchoKV(workspace=192)
turns = [
    "Hello! My name is Alice, I live in Lisbon, and my cat is called Momo.",
    "Name three fruits that grow in Portugal.",
    "And what do cats like to eat?",
    "What is the name of my cat?",
]
held = None
for turn in turns:
    messages = [{"role": "user", "content": turn}]
    if held is None:
        held = echokv.compress(model, messages, press, BUDGET, tokenizer=tokenizer)
    else:
        held.feed(messages)
    print(f"user: {turn}")
    print(f"assistant: {held.reply(max_new_tokens=48, evict_every=16)}")
    kept = held.entries[0] // (model.config.num_hidden_layers * model.config.num_key_value_heads)
    print(f"  ({kept} of {len(held.ids[0])} tokens held)")
