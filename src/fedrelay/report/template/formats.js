// Numbers as people read them, as in report/measures.py.
const NONE = "–";
const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB"];
const known = (write) => (value) => (value === null || value === undefined ? NONE : write(value));
const count = known((value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f"));
const plain = known((value) => String(Number(value.toPrecision(4))));
const percent = known((value) => `${(100 * value).toFixed(1)} %`);
const size = known((value) => {
  let place = 0;
  while (value >= 1000 && place < UNITS.length - 1) [value, place] = [value / 1000, place + 1];
  return place ? `${value.toFixed(1)} ${UNITS[place]}` : `${Math.round(value)} bytes`;
});
const duration = known((value) => {
  if (value < 100) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(value) / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(value) % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
});

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;
function deviation(values) {
  const middle = mean(values);
  return values.length > 1 ? Math.sqrt(sum(values.map((value) => (value - middle) ** 2)) / (values.length - 1)) : 0;
}
