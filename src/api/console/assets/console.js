// Refreshes the pages and follows the live stream. Everything else works without this script.

const PERIOD_MS = 2000;
const EVENTS_MAX = 1000;
const SESSION_REFRESH_MS = 60000;

const main = document.querySelector('main');
const pause = document.getElementById('pause');
const log = document.getElementById('log');
const stale = document.getElementById('stale');
let paused = false;
let onResume = () => {};

const refreshes = main.hasAttribute('data-refresh');

if (pause && (log || refreshes)) {
  pause.hidden = false;
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    if (!paused) onResume();
  });
}
if (log) follow(log);
else if (refreshes) startRefreshing();

/* Reloads the main element while the page is visible. */

function startRefreshing() {
  onResume = refresh;
  setInterval(refresh, PERIOD_MS);
  document.addEventListener('visibilitychange', refresh);
}

let loading = false;

async function refresh() {
  if (loading || paused || document.hidden) return;
  loading = true;
  try {
    const response = await fetch(location.href, { headers: { 'X-Refresh': '1' } });
    stale.hidden = response.ok;
    if (response.redirected) location.reload();
    else if (response.ok) {
      const page = new DOMParser().parseFromString(await response.text(), 'text/html');
      const next = page.querySelector('main');
      if (next && !paused) morph(main, next);
    }
  } catch {
    // The service does not respond: the page keeps the old data, marked as old, until a later request succeeds.
    stale.hidden = false;
  } finally {
    loading = false;
  }
}

/* Changes only the differences, so that focus, selection and typed text are kept. */
function morph(old, updated) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== updated.nodeValue) old.nodeValue = updated.nodeValue;
    return;
  }
  if (['INPUT', 'SELECT', 'TEXTAREA'].includes(old.tagName)) return;
  for (const { name } of [...old.attributes]) {
    if (!updated.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const { name, value } of updated.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [current, next] = [[...old.childNodes], [...updated.childNodes]];
  next.forEach((node, at) => {
    const existing = current[at];
    if (!existing) old.append(document.adoptNode(node));
    else if (existing.nodeName === node.nodeName && sameForm(existing, node)) morph(existing, node);
    else existing.replaceWith(document.adoptNode(node));
  });
  current.slice(next.length).forEach((node) => node.remove());
}

/* A form with another action or other hidden fields is replaced as a whole: its old hidden fields must not be sent. */
function sameForm(old, updated) {
  if (old.nodeName !== 'FORM') return true;
  const hidden = (form) => [...form.querySelectorAll('input[type=hidden]')].map((field) => `${field.name}=${field.value}`).join('&');
  return old.getAttribute('action') === updated.getAttribute('action') && hidden(old) === hidden(updated);
}

/* The live stream. EventSource must know every event name in advance, so the stream is read with fetch. */

function follow(log) {
  const only = log.dataset.only;
  const body = log.tBodies[0];
  const status = document.getElementById('stream');
  const queued = [];
  let last = log.dataset.last || '';
  document.getElementById('tools').hidden = false;
  document.getElementById('copy').addEventListener('click', () => copy(body, status));
  // The stream does not count as a use of the session: a request now and then keeps it from expiring.
  setInterval(() => document.hidden || fetch(location.href, { method: 'HEAD', headers: { 'X-Refresh': '1' } }).catch(() => {}), SESSION_REFRESH_MS);
  onResume = () => queued.splice(0).forEach(show);
  read();

  async function read() {
    try {
      const headers = last === '' ? {} : { 'Last-Event-ID': last };
      const response = await fetch(log.dataset.stream, { headers, cache: 'no-store' });
      if (response.redirected) return location.reload();
      if (!response.ok) throw new Error(String(response.status));
      status.textContent = 'live';
      await readEvents(response.body, take);
    } catch {
      // Whatever ended the stream, resume after the last event.
    }
    status.textContent = 'reconnecting';
    setTimeout(read, PERIOD_MS);
  }

  function take(event) {
    last = event.id;
    addFilterLink(event.event);
    if (only && event.event !== only) return;
    if (!paused) return show(event);
    queued.push(event);
    if (queued.length > EVENTS_MAX) queued.shift();
  }

  function show(event) {
    const row = body.insertRow(0);
    const number = document.createElement('th');
    number.scope = 'row';
    number.textContent = event.id;
    const data = document.createElement('code');
    data.textContent = event.data;
    row.append(number);
    row.insertCell().textContent = event.event;
    row.insertCell().append(data);
    while (body.rows.length > EVENTS_MAX) body.deleteRow(-1);
  }
}

async function readEvents(stream, take) {
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

function addFilterLink(name) {
  const chips = document.getElementById('chips');
  if ([...chips.querySelectorAll('a')].some((link) => link.textContent === name)) return;
  const link = document.createElement('a');
  link.href = `/console/events?event=${encodeURIComponent(name)}`;
  link.textContent = name;
  chips.appendChild(document.createElement('li')).append(link);
}

async function copy(body, status) {
  const event = ({ cells }) => ({ id: Number(cells[0].textContent), event: cells[1].textContent, data: JSON.parse(cells[2].textContent) });
  const text = [...body.rows].reverse().map((row) => JSON.stringify(event(row))).join('\n');
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else copyWithTextarea(text);
  status.textContent = `${body.rows.length} events copied`;
}

/* Browsers offer navigator.clipboard only over https and on localhost. */
function copyWithTextarea(text) {
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
}
