// Two ends of a WebSocket that compress, by the `ws` package: 100 messages each way (case P12). The server says its port on the
// first line; one line of JSON says where the proxy is and what to expect; the last line is what was agreed on.
const http = require('http');
const readline = require('readline');
const crypto = require('crypto');
const { WebSocket, WebSocketServer } = require('ws');

const options = JSON.parse(process.argv[2]);

function noise(count, seed) {
  const pieces = [];
  let hash = Buffer.from(seed);
  for (let made = 0; made < count; made += hash.length) {
    hash = crypto.createHash('sha512').update(hash).digest();
    pieces.push(hash);
  }
  return Buffer.concat(pieces).subarray(0, count);
}

// What is sent as number `i` of a side; `token` stands in number 10.
function message(i, side, token) {
  const same = `{"side":"${side}","kind":"event","text":"the same words come again and again"}`;
  if (i === 10) return `before ${token} between ${token} after ${same}`;
  if (i === 20) return noise(5000, side);
  if (i === 30) return Array.from({ length: 20000 }, (_, n) => `line ${n} of ${side}, much like others`).join('\n');
  if (i === 40) return '';
  return `message ${i} ${same.repeat(1 + (i % 7))}`;
}

function sendAll(ws, side, token) {
  for (let i = 1; i <= 100; i++) {
    const data = message(i, side, token);
    if (i === 20) {
      ws.send(data, { compress: false });
    } else if (i === 30) {
      const size = Math.ceil(data.length / 7);
      for (let n = 0; n < 7; n++) {
        ws.send(data.slice(n * size, (n + 1) * size), { fin: n === 6, compress: true });
        ws.ping(`${side} ${n}`);
      }
    } else {
      ws.send(data, { compress: true });
    }
  }
}

// Resolves when 100 messages have come as they should, and 7 pings.
function receiveAll(ws, side, token) {
  return new Promise((resolve, reject) => {
    let count = 0;
    let pings = 0;
    const over = () => count === 100 && pings === 7 && resolve();
    ws.on('ping', () => {
      pings += 1;
      over();
    });
    ws.on('message', (data, binary) => {
      count += 1;
      const expected = message(count, side, token);
      const same = binary ? Buffer.compare(data, expected) === 0 : data.toString() === expected;
      if (!same) reject(new Error(`message ${count} of the ${side}: ${data.toString().slice(0, 300)}`));
      over();
    });
    ws.on('error', reject);
    ws.on('close', (code, reason) => {
      if (count < 100) reject(new Error(`closed after ${count} of the ${side}: ${code} ${reason}`));
    });
  });
}

async function main() {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: options.server });
  await new Promise((resolve) => server.on('listening', resolve));
  console.log(server.address().port);
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const told = JSON.parse((await lines.next()).value);
  const serving = new Promise((resolve, reject) => {
    server.on('connection', (ws) => {
      const closed = new Promise((done) => ws.on('close', done));
      sendAll(ws, 'server', told.sent);
      receiveAll(ws, 'client', told.placeholder).then(() => closed).then(resolve, reject);
    });
  });
  const socket = await new Promise((resolve, reject) => {
    const request = http.request({
      ...told.proxy,
      method: 'CONNECT',
      path: told.at,
      headers: { 'proxy-authorization': told.authorization },
    });
    request.on('connect', (answer, socket) => resolve(socket));
    request.on('error', reject);
    request.end();
  });
  const ws = new WebSocket(`ws://${told.at}/socket`, {
    createConnection: () => socket,
    perMessageDeflate: options.client,
  });
  let agreed = 'none';
  ws.on('upgrade', (answer) => {
    agreed = answer.headers['sec-websocket-extensions'] || agreed;
  });
  const receiving = receiveAll(ws, 'server', told.expected);
  await new Promise((resolve, reject) => {
    ws.on('open', resolve);
    ws.on('error', reject);
  });
  sendAll(ws, 'client', told.placeholder);
  await receiving;
  ws.close(1000, 'done');
  const code = await serving;
  console.log(`closed with ${code}, extensions: ${agreed}`);
  process.exit(0);
}

main().catch((error) => {
  console.log(`failed: ${error.message}`);
  process.exit(1);
});
