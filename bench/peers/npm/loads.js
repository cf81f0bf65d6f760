import { setTimeout as sleep } from 'node:timers/promises';

/** Nanoseconds on a clock that all processes of this machine share; less than 2^53 for 100 days since its start. */
function now() {
  return Number(process.hrtime.bigint());
}

/** The loads of bench/src. */
export class Loads {
  #lock;
  #held = [];

  constructor(lock) {
    this.#lock = lock;
  }

  /** One task, one name, nobody else. */
  async pairs({ name, count, ...told }) {
    const lock = this.#lock(name, told);
    const ns = [];
    for (let pair = 0; pair < count; pair++) {
      const start = now();
      await lock.acquire();
      await lock.release();
      ns.push(now() - start);
    }
    return { ns };
  }

  /** Several processes take turns on one name: asked, granted, released. */
  async turns({ name, count, hold_us, pause_us }) {
    const lock = this.#lock(name);
    const turns = [];
    for (let turn = 0; turn < count; turn++) {
      const asked = now();
      await lock.acquire();
      const granted = now();
      await sleep(hold_us / 1_000);
      const released = now();
      await lock.release();
      turns.push([asked, granted, released]);
      await sleep(pause_us / 1_000);
    }
    return { turns };
  }

  /** Many tasks at once, on one name or each on its own. Each takes, keeps and gives back until time is up. */
  async crowd({ name, tasks, distinct, each, ...told }) {
    const begin = now();
    const crowd = Array.from({ length: tasks }, (_, task) =>
      work(this.#lock(distinct ? `${name}:${task}` : name, told), told),
    );
    const turns = await Promise.all(crowd);
    return summary(turns, now() - begin, each);
  }

  /** Tasks that wait for one name; each gets it once. */
  async queue({ name, tasks }) {
    const begin = now();
    const turn = async (lock) => {
      await lock.acquire();
      await lock.release();
    };
    await Promise.all(Array.from({ length: tasks }, () => turn(this.#lock(name))));
    return { begin, end: now() };
  }

  async hold({ name, count }) {
    const begin = now();
    for (let number = 0; number < count; number++) {
      const lock = this.#lock(`${name}:${number}`);
      await lock.acquire();
      this.#held.push(lock);
    }
    return { begin, end: now(), held: this.#held.length };
  }

  async release() {
    const begin = now();
    for (const lock of this.#held.splice(0)) {
      await lock.release();
    }
    return { begin, end: now() };
  }
}

/** When it asked, was granted and gave it up, each time. */
async function work(lock, { us, hold_us, pause_us }) {
  const turns = [];
  const end = now() + us * 1_000;
  for (let asked = now(); asked < end; asked = now()) {
    await lock.acquire();
    const granted = now();
    if (hold_us > 0) {
      await sleep(hold_us / 1_000);
    }
    turns.push([asked, granted, now()]);
    await lock.release();
    if (pause_us > 0) {
      await sleep(pause_us / 1_000);
    }
  }
  return turns;
}

function summary(tasks, took, each) {
  const turns = tasks.flat();
  const all = turns.map(([asked, granted]) => granted - asked).sort((one, other) => one - other);
  const at = (share) => all[Math.floor(((all.length - 1) * share) / 100)] ?? 0;
  const mean = all.reduce((sum, wait) => sum + wait, 0) / Math.max(all.length, 1);
  const grants = tasks.map((own) => own.length);
  return {
    grants: all.length,
    ns: took,
    mean,
    p50: at(50),
    p95: at(95),
    p99: at(99),
    max: at(100),
    least: Math.min(...grants),
    most: Math.max(...grants),
    ...(each && { turns }),
  };
}
