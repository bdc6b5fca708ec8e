// Refreshes the pages and follows the live stream. Everything else works without this script.

const PERIOD_MS = 2000;
const EVENTS_MAX = 1000;
const SESSION_REFRESH_MS = 60000;

const main = document.querySelector('main');
const pause = document.getElementById('pause');
const log = document.getElementById('log');
const stale = document.getElementById('stale');
let paused = false;
let period = PERIOD_MS;
let timer;
let onResume = () => {};

const refreshes = main.hasAttribute('data-refresh');
const live = document.getElementById('live');

/* Shows in the header whether the page follows the service. An unchanged text is not set again: a screen reader would announce it again. */
function showLive(text, style = '') {
  if (!live || live.textContent === text) return;
  live.textContent = text;
  live.className = `live ${style}`;
}

if (pause && (log || refreshes)) {
  pause.hidden = false;
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    pause.textContent = paused ? 'Resume updates' : 'Pause updates';
    showLive(paused ? 'paused' : 'live', paused ? 'paused' : '');
    if (!paused) onResume();
  });
}
if (log) follow(log);
else if (refreshes) startRefreshing();

offerThemes(document.getElementById('theme'));
logInByLink();

/* A button that steps through the colours: those that the browser prefers, light, dark. theme.js applies the choice to the next pages. */
function offerThemes(button) {
  if (!button) return;
  const names = { '': 'auto', light: 'light', dark: 'dark' };
  const themes = Object.keys(names);
  const root = document.documentElement;
  const label = () => { button.textContent = `Colours: ${names[root.dataset.theme ?? '']}`; };
  button.hidden = false;
  label();
  button.addEventListener('click', () => {
    root.dataset.theme = themes[(themes.indexOf(root.dataset.theme ?? '') + 1) % themes.length];
    label();
    try {
      localStorage.setItem('posthaste-theme', root.dataset.theme);
    } catch {
      // Not stored: the choice lasts as long as this page.
    }
  });
}

/* A log-in link has its token behind the #, which browsers send to no server: neither a log nor a proxy sees it. */
function logInByLink() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  const field = document.querySelector('main.narrow input[name=token]');
  if (!token || !field) return;
  history.replaceState(null, '', location.pathname + location.search);
  field.value = token;
  // The link of another person must not change who is logged in: only on the developer's own machine the form is sent at once.
  if (['localhost', '127.0.0.1', '[::1]'].includes(location.hostname)) field.form.requestSubmit();
}

/* Reloads the main element while the page is visible. */

function startRefreshing() {
  onResume = refresh;
  showLive('live');
  offerPeriods(document.getElementById('period'));
  refreshLater();
  document.addEventListener('visibilitychange', refresh);
}

/* The choice is stored, for the next pages. */
function offerPeriods(select) {
  try {
    const stored = Number(localStorage.getItem('posthaste-refresh'));
    if ([...select.options].some((option) => Number(option.value) === stored)) period = stored;
  } catch {
    // The browser stores nothing for this site.
  }
  select.hidden = false;
  select.value = String(period);
  select.addEventListener('change', () => {
    period = Number(select.value);
    refreshLater();
    try {
      localStorage.setItem('posthaste-refresh', select.value);
    } catch {
      // Not stored: the choice lasts as long as this page.
    }
  });
}

function refreshLater() {
  clearTimeout(timer);
  timer = setTimeout(() => refresh().finally(refreshLater), period);
}

let loading = false;

async function refresh() {
  if (loading || paused || document.hidden) return;
  loading = true;
  try {
    const response = await fetch(location.href, { headers: { 'X-Refresh': '1' } });
    stale.hidden = response.ok;
    showLive(response.ok ? 'live' : 'not updated', response.ok ? '' : 'lost');
    if (response.redirected) location.reload();
    else if (response.ok) {
      const page = new DOMParser().parseFromString(await response.text(), 'text/html');
      const next = page.querySelector('main');
      if (next && !paused) morph(main, next);
    }
  } catch {
    // The service does not respond: the page keeps the old data, marked as old, until a later request succeeds.
    stale.hidden = false;
    showLive('not updated', 'lost');
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
  morphChildren(old, updated);
}

/* Elements with an id are moved to their new place, so that what the operator has opened or selected stays with its row. */
function morphChildren(old, updated) {
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const node of [...updated.childNodes]) {
    const same = node.id ? named.get(node.id) : at;
    const usable = same && (node.id || !same.id) && same.nodeName === node.nodeName && sameForm(same, node);
    if (!usable) {
      old.insertBefore(document.adoptNode(node), at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    morph(same, node);
  }
  while (at) {
    const rest = at.nextSibling;
    at.remove();
    at = rest;
  }
}

/* A form with another action or other hidden fields is replaced as a whole: its old hidden fields must not be sent. */
function sameForm(old, updated) {
  if (old.nodeName !== 'FORM') return true;
  const hidden = (form) => [...form.querySelectorAll('input[type=hidden]')].map((field) => `${field.name}=${field.value}`).join('&');
  return old.getAttribute('action') === updated.getAttribute('action') && hidden(old) === hidden(updated);
}

/* The live stream. EventSource must know every event name in advance, so the stream is read with fetch. */

const SEVERITIES = ['info', 'warning', 'error'];
const SHAPES = { info: ['○', 'calm'], warning: ['▲', 'watch'], error: ['■', 'bad'] };

function follow(log) {
  const { only, severity, q } = log.dataset;
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
      showLive('live');
      await readEvents(response.body, take);
    } catch {
      // Whatever ended the stream, resume after the last event.
    }
    status.textContent = 'reconnecting';
    showLive('reconnecting', 'lost');
    setTimeout(read, PERIOD_MS);
  }

  function take(event) {
    last = event.id;
    const line = JSON.parse(event.data);
    // Missed entries are shown under every filter: any of them may have matched it.
    if (event.event !== 'lagged') {
      addFilterLink(event.event);
      if (only && event.event !== only) return;
      if (severity && SEVERITIES.indexOf(line.severity) < SEVERITIES.indexOf(severity)) return;
      if (q && !`${line.sentence} ${JSON.stringify(line.data)}`.toLowerCase().includes(q.toLowerCase())) return;
    }
    if (!paused) return show({ ...event, line });
    queued.push({ ...event, line });
    if (queued.length > EVENTS_MAX) queued.shift();
  }

  function show({ id, event, line }) {
    const row = body.insertRow(0);
    Object.assign(row.dataset, { seq: id, event, json: JSON.stringify(line.data) });
    const cell = (label, ...content) => {
      const td = row.insertCell();
      td.dataset.label = label;
      td.append(...content);
    };
    const time = element('time', line.at.slice(11, 19));
    time.dateTime = time.title = line.at;
    cell('Time', time);
    const [shape, style] = SHAPES[line.severity];
    const state = element('span');
    state.className = `state ${style}`;
    const symbol = element('span', shape);
    symbol.ariaHidden = 'true';
    state.append(symbol, ` ${line.severity}`);
    cell('Severity', state);
    const details = element('details');
    const pre = element('pre');
    pre.tabIndex = 0;
    pre.append(element('code', JSON.stringify(line.data, null, 2)));
    details.append(element('summary', line.sentence), pre);
    cell('What happened', details);
    cell('Event', element('code', event));
    while (body.rows.length > EVENTS_MAX) body.deleteRow(-1);
  }
}

function element(name, text = '') {
  const created = document.createElement(name);
  created.textContent = text;
  return created;
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
  const event = ({ dataset }) => ({ id: Number(dataset.seq), event: dataset.event, data: JSON.parse(dataset.json) });
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
