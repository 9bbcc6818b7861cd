// A plain worker: it takes part in a parti group through its heartbeat and its alias alone. docs/PLAIN-WORKERS.md is the contract.
//
//   NATS_URL=nats://127.0.0.1:4222 NAMESPACE=parti WORKER_ID=js-1 HEARTBEAT_TTL=15 node worker.js
import { connect } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";

const { NATS_URL = "nats://127.0.0.1:4222", NAMESPACE: ns = "parti", WORKER_ID: id = "js-1" } = process.env;
const ttl = Number(process.env.HEARTBEAT_TTL ?? 15) * 1000; // the group's HeartbeatTTL, whole seconds
const interval = ttl / 5;
const margin = ttl / 8; // handlers have until then to end
const patience = ttl; // with a partition that an earlier owner may be ending just now

const nc = await connect({ servers: NATS_URL, name: id, maxReconnectAttempts: -1 });
const js = jetstream(nc, { timeout: margin });
const jsm = await jetstreamManager(nc, { checkAPI: false });
const beatSubject = `$KV.${ns}-heartbeat.heartbeat.${id}`;
const aliasSubject = `$KV.${ns}-control.assignment.${id}`;
const live = nc.subscribe(`_PARTI.${ns}.live.assignment.${id}`);

const running = new Map(); // partition ID → { epoch, stop }
let version = 0; // of the newest alias seen: reads may be stale
let leaseUntil = 0; // performance.now() until which others believe that this worker lives
let stopping = false;

// work is where your code goes. It ends when the signal says so, and fences what it writes with the epoch.
function work(partition, signal) {
  console.log(JSON.stringify({ event: "start", id: partition.id, epoch: partition.epoch, subject: partition.subject }));
  signal.addEventListener("abort", () => console.log(JSON.stringify({ event: "stop", id: partition.id, epoch: partition.epoch })));
}

function start(partition) {
  const abort = new AbortController();
  const timer = setTimeout(() => work(partition, abort.signal), partition.earlier_owner ? patience : 0);
  running.set(partition.id, { epoch: partition.epoch, stop: () => (clearTimeout(timer), abort.abort()) });
}

// follow makes what runs be what the alias lists; no alias lists nothing.
function follow(alias) {
  if (alias.version && alias.version < version) return;
  version = alias.version || version;
  const listed = new Map(alias.partitions.map((p) => [p.id, p]));
  for (const [pid, run] of running) {
    if (listed.get(pid)?.epoch === run.epoch) continue;
    run.stop();
    running.delete(pid);
  }
  if (stopping || performance.now() >= leaseUntil) return; // nobody would know that it runs here
  for (const p of listed.values()) if (!running.has(p.id)) start(p);
}

const nothing = { partitions: [] };

async function read() {
  const msg = await jsm.direct.getMessage(`KV_${ns}-control`, { last_by_subj: aliasSubject }); // null: there is none
  const gone = !msg || msg.header?.get("KV-Operation") || msg.header?.get("Nats-Marker-Reason");
  follow(gone ? nothing : msg.json());
}

async function beat() {
  const sent = performance.now();
  // The TTL is what ends the key when this worker is dead. A write without it would make the key live for ten minutes.
  await js.publish(beatSubject, new Date().toISOString(), { ttl: `${ttl / 1000}s` });
  leaseUntil = sent + ttl - margin;
}

// The lease is over: others may start what runs here.
function checkLease() {
  if (performance.now() >= leaseUntil) follow(nothing);
}

async function leave() {
  if (stopping) return;
  stopping = true;
  follow(nothing);
  const left = JSON.stringify({ worker_id: id, schema_version: 1, state: "left" });
  await js.publish(beatSubject, left, { ttl: `${ttl / 1000}s` }).catch(() => {}); // others find out by the expiry
  await nc.close();
  process.exit(0);
}
process.on("SIGTERM", leave);
process.on("SIGINT", leave);

(async () => {
  for await (const msg of live) {
    const marker = msg.headers?.get("KV-Operation") || msg.headers?.get("Nats-Marker-Reason");
    follow(marker ? nothing : msg.json());
  }
})();

setInterval(checkLease, 100);
for (; !stopping; await new Promise((r) => setTimeout(r, interval))) {
  try {
    await beat();
    await read(); // what the live subject missed, e.g. while disconnected
  } catch (err) {
    console.error(`${new Date().toISOString()} ${err.message}`); // the next one may succeed; the lease goes on meanwhile
  }
}
