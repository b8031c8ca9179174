// The list of samples, filled as it comes into view and emptied far from it; and the keys.
const list = document.getElementById('samples'), statusLine = document.getElementById('status');
const nothing = document.getElementById('nothing');
const AT_ONCE = 4, MARGIN = '1500px 0px';
let shownWords = '';
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) entry.isIntersecting ? render(entry.target) : empty(entry.target);
}, { rootMargin: MARGIN });

function render(item) {
  if (item.childElementCount) return;
  fill(item, samples[item.dataset.place], shownWords);
  item.style.minHeight = '';
}

function empty(item) {
  if (!item.childElementCount || item.contains(document.activeElement) || item.querySelector('details[open]')) return;
  item.style.minHeight = item.offsetHeight + 'px';
  item.replaceChildren();
}

// A guess at the height, so that the scroll bar tells the truth before a sample is filled.
function guess(sample) {
  const said = wordsOf(sample), line = Math.max(30, (list.clientWidth - 34) / 8.13);
  if (sample.breaks === undefined) sample.breaks = said.split('\n').length;
  return 100 + 25 * (Math.ceil(said.length / line) + 0.6 * sample.breaks) + (sample.turns || []).length * 42
    + (sample.lints.length ? 36 : 0);
}

function itemOf(sample) {
  const item = make('li', 'sample' + (sample.refused ? ' out' : ''));
  item.dataset.place = sample.place;
  item.dataset.row = sample.row;
  item.style.minHeight = guess(sample) + 'px';
  return item;
}

function update() {
  const want = wanted(), kept = samples.filter(sample => fits(sample, want));
  shownWords = /^#\s*\d+$/.test(want.q) ? '' : want.q.toLowerCase();
  tell(null);
  watcher.disconnect();
  const items = kept.map(itemOf);
  list.replaceChildren(...items);
  items.slice(0, AT_ONCE).forEach(render);
  items.forEach(item => watcher.observe(item));
  const active = KEYS.filter(key => key !== 'q' && want[key]).length;
  more.textContent = active ? 'Filters (' + active + ')' : 'Filters';
  const of = kept.length === samples.length ? '' : ' of ' + number(samples.length);
  statusLine.textContent = number(kept.length) + of + (samples.length === 1 ? ' sample' : ' samples');
  nothing.hidden = kept.length > 0;
  nothing.textContent = 'No sample of this page fits. The page may hold fewer rows than the statistics count: '
    + '--rows N puts more on it, --row I a certain one.';
  for (const asks of document.querySelectorAll('#statistics [data-filter]'))
    asks.setAttribute('aria-pressed', String(isAsked(asks.dataset.filter, want)));
  keepInAddress(want);
}

function isAsked(said, want) {
  return [...new URLSearchParams(said)].every(([key, value]) => want[key] === value);
}

// Arrows within a group that is one stop of the Tab key: by order, and up and down by place on the screen.
function move(event) {
  const group = event.target.closest('[data-roving]');
  if (!group || event.altKey || event.ctrlKey || event.metaKey) return false;
  const all = [...group.children], at = all.indexOf(event.target), last = all.length - 1;
  const to = { ArrowRight: () => all[Math.min(last, at + 1)], ArrowLeft: () => all[Math.max(0, at - 1)],
    Home: () => all[0], End: () => all[last], ArrowDown: () => beside(all, at, 1), ArrowUp: () => beside(all, at, -1),
    t: () => all.slice(at + 1).find(token => token.classList.contains('b')) }[event.key];
  const next = to && to();
  if (next) { stop(group, next); next.focus(); }
  return Boolean(next);
}

function stop(group, next) {
  for (const one of group.querySelectorAll('[tabindex="0"]')) one.tabIndex = -1;
  next.tabIndex = 0;
}

function beside(all, at, way) {
  const from = all[at].getBoundingClientRect(), middle = from.left + from.width / 2;
  let best = null, line = null;
  for (let place = at + way; place >= 0 && place < all.length; place += way) {
    const rect = all[place].getBoundingClientRect();
    if (way * (rect.top - from.top) < from.height / 2) continue;
    if (line === null) line = rect.top;
    if (Math.abs(rect.top - line) > from.height / 2) break;
    const far = Math.abs(rect.left + rect.width / 2 - middle);
    if (best === null || far < best.far) best = { far, one: all[place] };
  }
  return best && best.one;
}

function step(way) {
  const items = [...list.children], now = items.findIndex(item => item.contains(document.activeElement));
  const near = items.findIndex(item => item.getBoundingClientRect().bottom > form.offsetHeight + 8);
  const item = items[now < 0 ? near : now + way];
  if (!item) return;
  render(item);
  const first = item.querySelector('[data-roving] > [tabindex="0"]') || item.querySelector('button, summary');
  item.scrollIntoView({ block: 'start' });
  if (first) first.focus({ preventScroll: true });
}

document.addEventListener('keydown', event => {
  const typing = event.target.closest('input, select, textarea');
  if (event.key === 'Escape') {
    if (typing && typing.name === 'q' && typing.value) { typing.value = ''; update(); } else if (typing) typing.blur();
    tell(null);
  } else if (typing || event.altKey || event.ctrlKey || event.metaKey) return;
  else if (event.key === '/') field('q').focus();
  else if (event.key === 'n' || event.key === 'p') step(event.key === 'n' ? 1 : -1);
  else if (!move(event)) return;
  if (event.key !== 'Escape') event.preventDefault();
});

const tokenAt = event => event.target.closest && event.target.closest('#samples [data-roving] > b');
list.addEventListener('focusin', event => {
  const token = tokenAt(event);
  if (token) stop(token.parentElement, token);
  tell(token);
});
list.addEventListener('click', event => tokenAt(event)?.focus({ preventScroll: true }));  // a tap focuses not everywhere
list.addEventListener('focusout', () => tell(null));
list.addEventListener('mouseover', event => tell(tokenAt(event) || focusedToken()));
list.addEventListener('mouseleave', () => tell(focusedToken()));
addEventListener('scroll', () => {
  if (told && told === document.activeElement) placeTell(told); else tell(null);
}, { passive: true });
function focusedToken() {
  const now = document.activeElement;
  return now && now.tell ? now : null;
}

for (const group of document.querySelectorAll('#statistics [data-roving]'))
  [...group.children].forEach((one, at) => { one.tabIndex = at ? -1 : 0; });
// A lint of the tokenizer or of rows beyond the page stands at no sample: there is nothing to filter by.
for (const asks of document.querySelectorAll('#statistics [data-filter^="lint="]'))
  asks.disabled = !samples.some(sample => sample.lints.includes(asks.textContent));
if (matchMedia('(max-width: 560px)').matches) document.getElementById('statistics')?.removeAttribute('open');
setFilters(location.hash.slice(1));
update();
if (location.hash.length > 1) form.scrollIntoView({ block: 'start' });
