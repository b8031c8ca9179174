// Search and filters: their state stands in the page's address after #, so that a view can be kept and sent.
const form = document.getElementById('filters'), field = name => form.elements.namedItem(name);
const KEYS = ['q', 'targets', 'lint', 'refused', 'source', 'min', 'max'];

function wanted() {
  return Object.fromEntries(KEYS.map(key => [key, field(key) ? field(key).value.trim() : '']));
}

function isNumber(value) { return value !== '' && !Number.isNaN(Number(value)); }

function fits(sample, want) {
  const row = /^#\s*(\d+)$/.exec(want.q);
  if (row ? sample.row !== Number(row[1]) : want.q && !wordsOf(sample).includes(want.q.toLowerCase())) return false;
  if (want.source !== '' && sample.source !== Number(want.source)) return false;
  if (want.lint && !(want.lint === '*' ? sample.lints.length : sample.lints.includes(want.lint))) return false;
  if (want.refused === 'no' && sample.refused) return false;
  if (want.refused && want.refused !== 'no'
    && !(sample.refused && (want.refused === '*' || sample.refused.reason === want.refused))) return false;
  if (want.targets && (want.targets === 'with') !== (sample.targetCount > 0)) return false;
  const hasLength = isNumber(want.min) || isNumber(want.max);
  if (hasLength && sample.refused) return false;  // a row that was left out has no length
  return !(isNumber(want.min) && sample.length < Number(want.min))
    && !(isNumber(want.max) && sample.length > Number(want.max));
}

// Sets the filters named in `said`, a text such as "lint=duplicate&q=Paris"; a value that a list lacks sets nothing.
function setFilters(said) {
  for (const [key, value] of new URLSearchParams(said)) if (KEYS.includes(key) && field(key)) field(key).value = value;
}

function keepInAddress(want) {
  const said = new URLSearchParams(KEYS.filter(key => want[key]).map(key => [key, want[key]])).toString();
  try { history.replaceState(null, '', said ? '#' + said : location.pathname + location.search); } catch { /* a frame */ }
}

const fields = document.getElementById('fields'), more = document.getElementById('more');
more.addEventListener('click', () => {
  more.setAttribute('aria-expanded', String(form.classList.toggle('open')));
});
document.getElementById('clear').addEventListener('click', () => { form.reset(); update(); field('q').focus(); });
form.addEventListener('submit', event => event.preventDefault());
let waiting = 0;
form.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(update, 80); });
addEventListener('hashchange', () => { form.reset(); setFilters(location.hash.slice(1)); update(); });

// Lints, reasons, rows and bars of the statistics filter on a click, in place of what was asked before.
document.addEventListener('click', event => {
  const asks = event.target.closest('[data-filter]');
  if (!asks) return;
  form.reset();
  setFilters(asks.dataset.filter);
  update();
  form.scrollIntoView({ block: 'start' });
});

// System, light, dark; kept for the next page where the browser allows it.
const theme = document.getElementById('theme'), THEMES = ['system', 'light', 'dark'];
function setTheme(name) {
  theme.textContent = 'Theme: ' + name;
  if (name === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try { localStorage.setItem('outlive-theme', name); } catch { /* no storage for pages of files */ }
}
let kept = null;
try { kept = localStorage.getItem('outlive-theme'); } catch { /* as above */ }
if (THEMES.includes(kept)) setTheme(kept);
theme.addEventListener('click', () => setTheme(
  THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || 'system') + 1) % THEMES.length]));
