"""Fresh databases to break: a file or a schema that nobody has used."""

import secrets

import pgqrs
from proof.order import Order


def fresh(order: Order, backend: str) -> pgqrs.Config:
    name = secrets.token_hex(6)
    if backend == "postgres":
        return pgqrs.Config(order.postgres, schema=f"p_{name}", pool_size=4)
    return pgqrs.Config(f"{backend}:///{order.folder / f'{name}.db'}")
