// Keeps a page fresh, and follows the live stream. Everything else works without it.

const PERIOD_MS = 2000;
const EVENTS_MAX = 1000;
const AWAKE_MS = 60000;

const main = document.querySelector('main');
const pause = document.getElementById('pause');
const log = document.getElementById('log');
const stale = document.getElementById('stale');
let paused = false;
let onResume = () => {};

const fresh = main.hasAttribute('data-refresh');

if (pause && (log || fresh)) {
  pause.hidden = false;
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    if (!paused) onResume();
  });
}
if (log) follow(log);
else if (fresh) keepFresh();

/* The main part, asked for anew while somebody looks. */

function keepFresh() {
  onResume = refresh;
  setInterval(refresh, PERIOD_MS);
  document.addEventListener('visibilitychange', refresh);
}

let asking = false;

async function refresh() {
  if (asking || paused || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { 'X-Refresh': '1' } });
    stale.hidden = answer.ok;
    if (answer.redirected) location.reload();
    else if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const next = page.querySelector('main');
      if (next && !paused) become(main, next);
    }
  } catch {
    // The service is away: what stands here stays, told to be old, and the next look may find it.
    stale.hidden = false;
  } finally {
    asking = false;
  }
}

/* Changes only what differs, so that focus, selection and what is being typed stay. */
function become(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (['INPUT', 'SELECT', 'TEXTAREA'].includes(old.tagName)) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [now, next] = [[...old.childNodes], [...fresh.childNodes]];
  next.forEach((node, at) => {
    const there = now[at];
    if (!there) old.append(document.adoptNode(node));
    else if (there.nodeName === node.nodeName && sameForm(there, node)) become(there, node);
    else there.replaceWith(document.adoptNode(node));
  });
  now.slice(next.length).forEach((node) => node.remove());
}

/* A form that acts on another thing is another form: its hidden fields must not stay behind. */
function sameForm(old, fresh) {
  if (old.nodeName !== 'FORM') return true;
  const hidden = (form) => [...form.querySelectorAll('input[type=hidden]')].map((field) => `${field.name}=${field.value}`).join('&');
  return old.getAttribute('action') === fresh.getAttribute('action') && hidden(old) === hidden(fresh);
}

/* The live stream. EventSource wants every name of an event beforehand, and ours may be new: it is read by hand. */

function follow(log) {
  const only = log.dataset.only;
  const body = log.tBodies[0];
  const said = document.getElementById('stream');
  const waiting = [];
  let last = log.dataset.last || '';
  document.getElementById('tools').hidden = false;
  document.getElementById('copy').addEventListener('click', () => copy(body, said));
  // A stream is no request: without one now and then, the session would end under it.
  setInterval(() => document.hidden || fetch(location.href, { method: 'HEAD', headers: { 'X-Refresh': '1' } }).catch(() => {}), AWAKE_MS);
  onResume = () => waiting.splice(0).forEach(show);
  read();

  async function read() {
    try {
      const headers = last === '' ? {} : { 'Last-Event-ID': last };
      const answer = await fetch(log.dataset.stream, { headers, cache: 'no-store' });
      if (answer.redirected) return location.reload();
      if (!answer.ok) throw new Error(String(answer.status));
      said.textContent = 'live';
      await lines(answer.body, take);
    } catch {
      // Whatever ended it: come back where it ended.
    }
    said.textContent = 'reconnecting';
    setTimeout(read, PERIOD_MS);
  }

  function take(event) {
    last = event.id;
    chip(event.event);
    if (only && event.event !== only) return;
    if (!paused) return show(event);
    waiting.push(event);
    if (waiting.length > EVENTS_MAX) waiting.shift();
  }

  function show(event) {
    const row = body.insertRow(0);
    const number = document.createElement('th');
    number.scope = 'row';
    number.textContent = event.id;
    const told = document.createElement('code');
    told.textContent = event.data;
    row.append(number);
    row.insertCell().textContent = event.event;
    row.insertCell().append(told);
    while (body.rows.length > EVENTS_MAX) body.deleteRow(-1);
  }
}

async function lines(stream, take) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    blocks.map(parse).filter((event) => event.id).forEach(take);
  }
}

function parse(block) {
  const event = { id: '', event: 'message', data: '' };
  const data = [];
  for (const line of block.split('\n')) {
    const at = line.indexOf(': ');
    const [name, value] = [line.slice(0, at), line.slice(at + 2)];
    if (name === 'data') data.push(value);
    else if (name === 'id' || name === 'event') event[name] = value;
  }
  return { ...event, data: data.join('\n') };
}

function chip(name) {
  const chips = document.getElementById('chips');
  if ([...chips.querySelectorAll('a')].some((link) => link.textContent === name)) return;
  const link = document.createElement('a');
  link.href = `/console/events?event=${encodeURIComponent(name)}`;
  link.textContent = name;
  chips.appendChild(document.createElement('li')).append(link);
}

async function copy(body, said) {
  const event = ({ cells }) => ({ id: Number(cells[0].textContent), event: cells[1].textContent, data: JSON.parse(cells[2].textContent) });
  const text = [...body.rows].reverse().map((row) => JSON.stringify(event(row))).join('\n');
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else copyByHand(text);
  said.textContent = `${body.rows.length} events copied`;
}

/* Over plain http browsers offer no clipboard but the old one. */
function copyByHand(text) {
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
}
