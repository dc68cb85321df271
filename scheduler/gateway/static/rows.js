// Long tables: only the rows that can be seen are in the document.

import { useLayoutEffect, useState } from "./vendor/preact-htm.js";

const BEYOND = 12; // rows drawn above and below what is visible

/** `[first, last, row, onScroll]` of what to draw in a box: numbers of rows, the height of one. */
export function useVisible(box, total) {
  const [view, setView] = useState({ top: 0, height: 800, row: 38 });
  useLayoutEffect(() => {
    const measure = () => box.current && setView({
      top: box.current.scrollTop,
      height: box.current.clientHeight,
      row: parseFloat(getComputedStyle(box.current).getPropertyValue("--row")) || 38,
    });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / view.row) - BEYOND);
  const last = Math.min(total, Math.ceil((view.top + view.height) / view.row) + BEYOND);
  const scrolled = () => {
    const top = box.current?.scrollTop; // now: when the view is set, the box may be gone
    if (top !== undefined) setView((before) => ({ ...before, top }));
  };
  return [first, last, view.row, scrolled];
}
