// Applies the colours that the operator chose. Loaded before the page is painted, so that no page flashes in the other colours.
try {
  document.documentElement.dataset.theme = localStorage.getItem('posthaste-theme') ?? '';
} catch {
  // The browser stores nothing for this site: the colours are those that it prefers.
}
