"""Seed 000: files are listed, fetched and zipped; the network fails on the way, and no completed step runs again."""

import asyncio
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pgqrs


@dataclass
class ZipParams:
    bucket: str
    prefix: str


@dataclass
class ZipResult:
    archive_path: str
    file_count: int


network_failures = [pgqrs.TransientError("the network is away", retry_after=0)]


def list_objects(bucket: str, prefix: str) -> list[str]:
    print(f"listing {prefix}*")
    return sorted(str(path) for path in Path(bucket).glob(f"{prefix}*"))


def download_all(files: list[str]) -> list[str]:
    print(f"downloading {len(files)} files")
    if network_failures:
        print("the network fails")
        raise network_failures.pop()
    return files


def create(files: list[str]) -> str:
    print("creating the archive")
    path = Path(files[0]).with_name("archive.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, Path(file).name)
    return str(path)


async def zip_files_handler(ctx: pgqrs.Context, params: ZipParams) -> ZipResult:
    print(f"attempt {ctx.attempt}")
    files = await ctx.step("list_files", list_objects, params.bucket, params.prefix)
    local_files = await ctx.step("download_files", download_all, files)
    archive_path = await ctx.step("create_archive", create, local_files)
    return ZipResult(archive_path=archive_path, file_count=len(files))


async def main(bucket: str) -> None:
    async with pgqrs.connect(install=True) as store:
        await store.create_workflow("zip_files")
        worker = await pgqrs.consumer("worker-1", 8080, "zip_files").handler(zip_files_handler).create(store)
        polling = asyncio.create_task(worker.poll_forever())

        run_id = await pgqrs.workflow("zip_files").trigger(ZipParams(bucket, "2024")).execute(store)
        run = await pgqrs.workflow("zip_files").get_run(run_id, store)
        await run.result(timeout=60)
        worker.stop()
        await polling

        await run.refresh()
        result = run.output(ZipResult)
        assert result is not None  # noqa: S101 - for type checkers: it has ended
        print(f"{run.status}: {Path(result.archive_path).name} holds {result.file_count} files")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for month in range(1, 4):
            Path(folder, f"2024-0{month}.txt").write_text(f"report {month}")
        asyncio.run(main(folder))
