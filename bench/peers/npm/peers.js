// Locks of npm at their defaults, as worker processes of `cargo xtask bench`: `node peers.js KIND URL THREADS`.
//
// They are told what to do as bench/src/serve.rs is: a line of JSON each on standard input, answered by one on
// standard output. A task is a chain of promises; THREADS, what others' runtimes have, is not looked at.

import { createInterface } from 'node:readline';

import { Loads } from './loads.js';
import { connect } from './locks.js';

/** Pairs that are not measured, for the compiler's sake. */
const WARM_UP = 2_000;

const [kind, url] = process.argv.slice(2);
const loads = new Loads(connect(kind, url));
await loads.pairs({ name: `warm-up:${process.pid}`, count: WARM_UP });

say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const told = JSON.parse(line);
  const known = ['pairs', 'turns', 'crowd', 'queue', 'hold', 'release'].includes(told.do);
  say(known ? await loads[told.do](told) : { error: `no such load: ${told.do}` });
}
process.exit(0);

function say(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
