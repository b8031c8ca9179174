"""A training loop of your own, with Outlive's data, model and loss rule: python examples/own_loop.py run.yaml"""

import sys

import torch

import outlive

run = outlive.Run.load(sys.argv[1])
data = outlive.prepare(run)  # rows → tokens and weights → plan
model = outlive.modeling.load(run.model, precision=run.precision)
optimizer = torch.optim.AdamW(model.trained().values(), lr=run.optimizer.lr, weight_decay=0.0)

for step in outlive.batches(data):
    loss = 0.0
    for batch in step.micro_batches:
        share = outlive.objective(model, batch, outlive.METHODS["sft"], step.totals)
        share.backward()
        loss += share.item()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step.cursor.step + 1}: loss {loss:.4f}")

outlive.checkpoint.save(model, f"{run.name}-own", tokenizer=data.place.folder)
