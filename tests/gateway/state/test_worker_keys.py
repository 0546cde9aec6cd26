"""Workers that start after the last key was revoked: they require a key, like those that have had one."""

import asyncio
import os
import signal

from waiting import until
from worker_gateway import settings_text, worker_gateway


def test_worker_that_starts_after_the_last_key_was_revoked_rejects_clients(tmp_path):
    async def run():
        text = settings_text("http://127.0.0.1:9", str(tmp_path / "s.db"))
        log = tmp_path / "log"
        async with worker_gateway(tmp_path, text, 2) as gateway:
            (tmp_path / "toolwire.toml").write_text(text[: text.index("[keys.ann]")], encoding="utf-8")
            gateway.process.send_signal(signal.SIGHUP)
            await until(lambda: log.read_text().count("every request is rejected") == 2)
            for pid in gateway.workers:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: log.read_text().count("runs again") == 2)
            assert await gateway.statuses(20) == [401] * 20

    asyncio.run(run())
