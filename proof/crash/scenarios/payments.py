"""A table of the user's own, beside ours: what transactions write into."""

from __future__ import annotations

from proof.crash.scenarios.scenario import Scenario, rows


class Payments(Scenario):
    """A scenario with a table of payments."""

    async def prepare(self, store):
        await super().prepare(store)
        await rows(store, f"drop table if exists {self.table(store)}")
        await rows(store, f"create table {self.table(store)} (amount integer not null)")

    def paying(self):
        """Return the work of a transaction that pays, tells of it, and returns how many payments there are."""

        async def pay(tx) -> int:
            await tx.execute(f"insert into {self.table(self.world.store)} (amount) values (5)")
            tx.emit("paid", {"amount": 5})
            return int((await tx.fetch(f"select count(*) from {self.table(self.world.store)}"))[0][0])

        return pay

    async def paid(self) -> int:
        return int((await rows(self.world.store, f"select count(*) from {self.table(self.world.store)}"))[0][0])

    @staticmethod
    def table(store) -> str:
        return f'"{store.config.schema}".payments' if store.config.backend == "postgres" else "payments"
