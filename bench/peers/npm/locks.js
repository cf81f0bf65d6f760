import { Redis } from 'ioredis';
import nodeRedisson from 'node-redisson';
import { Mutex, Semaphore } from 'redis-semaphore';

/** What makes locks: `acquire` waits until it is held, `release` gives it up and waits for the confirmation. */
export function connect(kind, url) {
  switch (kind) {
    case 'node-redisson':
      return connectNodeRedisson(url);
    case 'redis-semaphore':
      return connectRedisSemaphore(url);
    default:
      throw new Error(`no such kind: ${kind}`);
  }
}

/** The owner is the object, so each task has its own. */
function connectNodeRedisson(url) {
  const { hostname: host, port } = new URL(url);
  const redisson = new nodeRedisson.Redisson({ redis: { options: { host, port: Number(port) } } });
  return (name) => {
    const lock = redisson.getLock(name);
    return { acquire: () => lock.lock(), release: () => lock.unlock() };
  };
}

function connectRedisSemaphore(url) {
  const redis = new Redis(url);
  return (name, { mode, of } = {}) => {
    const lock = mode === 'permits' ? new Semaphore(redis, name, of) : new Mutex(redis, name);
    const acquire = async () => {
      // Gives up after ten seconds by itself.
      while (!(await lock.tryAcquire())) {}
    };
    return { acquire, release: () => lock.release() };
  };
}
