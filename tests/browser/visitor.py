"""A person in front of a browser, who is told if a page did what it must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request, Route

WIDE, NARROW = (1280, 900), (390, 844)
PATIENCE_MS = 15_000.0  # the machine may be busy
PLACES = ("/", "/jobs", "/workflows", "/experiments", "/people", "/cluster", "/help")
_SERIOUS = ("serious", "critical")
_CHECK = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    const html = (nodes) => nodes.slice(0, 3).map((node) => node.html);
    return violations.map(({ id, impact, nodes }) => ({ id, impact, html: html(nodes) }));
}"""


@dataclass
class Visitor:
    page: Page
    url: str
    mistakes: list[str] = field(default_factory=list)  # of the pages, by the browser's account

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def log_in(self, token: str) -> None:
        self.go("/login")
        self.page.get_by_label("Or paste your token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.sees_title("Now")

    def sees_title(self, title: str) -> None:
        self.page.get_by_role("heading", level=1, name=title).wait_for()

    def sees(self, text: str) -> Locator:
        """Waits until the text can be seen."""
        found = self.page.get_by_text(text).first
        found.wait_for()
        return found

    def row(self, job: str) -> Locator:
        """The row of a job in the list."""
        return self.page.locator("tr.job").filter(has=self.page.get_by_role("link", name=job))

    def barriers(self) -> list[Any]:
        """What axe-core takes for a serious barrier to people with disabilities."""
        if not self.page.evaluate("() => 'axe' in globalThis"):
            self.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
        found = self.page.evaluate(_CHECK)
        return [each for each in found if each["impact"] in _SERIOUS]

    def overflows(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(self.page.evaluate("() => document.documentElement.scrollWidth > innerWidth"))


def visitor(
    browser: Browser, url: str, size: tuple[int, int] = WIDE, dark: bool = False
) -> Visitor:
    """In a window of their own, with a network that ends at the gateway."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    made = Visitor(context.new_page(), url)

    def pass_on(route: Route, request: Request) -> None:
        if request.url.startswith(f"{url}/"):
            route.continue_()
        else:
            made.mistakes.append(f"asked {request.url}")
            route.abort()

    context.route("**/*", pass_on)
    made.page.on("pageerror", lambda error: made.mistakes.append(f"{error}\n{error.stack}"))
    made.page.on("console", lambda line: _listen(made, line.type, line.text))
    return made


def _listen(made: Visitor, kind: str, text: str) -> None:
    """What the gateway refuses is told as an error, too, and is what some tests are about."""
    if kind == "error" and not text.startswith("Failed to load resource"):
        made.mistakes.append(text)
