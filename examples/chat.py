"""A chat whose cache never grows beyond a budget: what was said before is evicted from, turn by turn."""

import echokv

BUDGET = 256  # tokens that each KV head keeps between two turns

model, tokenizer = echokv.load_model("smollm2", dtype="float32")
press = echokv.EchoKV(workspace=512)
facts = "My name is Alice and I live in Lisbon with a cat called Momo. I work as a baker and I get up at four. " * 12
turns = [facts + "Greet me by my name, in one short sentence.", "Which animal do I live with?", "Where do I live?"]

held = echokv.compress(model, [{"role": "user", "content": turns[0]}], press, BUDGET, tokenizer=tokenizer)
for number, turn in enumerate(turns):
    if number:
        held.feed([{"role": "user", "content": turn}])
    print(f"user: {turn[-60:]}")
    kept = held.entries[0] // (model.config.num_hidden_layers * model.config.num_key_value_heads)
    print(f"  ({kept} of {len(held.ids[0])} tokens kept)")
    print(f"assistant: {held.reply(max_new_tokens=40)}")
