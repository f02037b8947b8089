//go:build browser

package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// pageTimeout bounds how long a page may take; it is long, since test machines are busy.
const pageTimeout = 60 * time.Second

// screenshots is the directory for pictures of the pages; none are kept if it is empty.
var screenshots = os.Getenv("CONSOLE_SCREENSHOTS")

// chromium starts one browser for all tests; each has a tab of its own.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("these tests need Debian's chromium: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	return ctx, chromedp.Do(ctx)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if ctx, err := chromium(); err == nil {
		_ = chromedp.Cancel(ctx) // the browser ends with the tests
	}
	os.Exit(code)
}

// tab is a page as a person sees it. When its test ends, nothing may have gone wrong in it.
type tab struct {
	t   testing.TB
	ctx context.Context

	received atomic.Int64 // bytes by WebSocket

	mu      sync.Mutex
	trouble []string
	away    bool // the server is meant to be away, and the browser says so
}

func open(t testing.TB, url string) *tab {
	t.Helper()
	chrome, err := chromium()
	require.NoError(t, err)
	ctx, cancel := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext()) // a window of its own
	b := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.heard))
	t.Cleanup(func() {
		cancel()
		require.Empty(t, b.trouble, "errors in the browser's console")
	})
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	b.do(chromedp.Navigate(url))
	return b
}

// heard records a message of the browser's console.
func (b *tab) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventWebSocketFrameReceived:
		b.received.Add(counts(e))
	case *cdpruntime.EventExceptionThrown:
		b.trouble = append(b.trouble, fmt.Sprintf("%s %+v", e.ExceptionDetails.Text,
			e.ExceptionDetails.Exception))
	case *cdpruntime.EventConsoleAPICalled:
		if e.Type == cdpruntime.ConsoleAPICalledTypeError ||
			e.Type == cdpruntime.ConsoleAPICalledTypeWarning {
			b.trouble = append(b.trouble, fmt.Sprintf("%s: %s", e.Type, e.Args[0].Value))
		}
	case *log.EventEntryAdded:
		network := e.Entry.Source == log.EntrySourceNetwork ||
			strings.HasPrefix(e.Entry.Text, "WebSocket ") // no connection, or one that closes
		if e.Entry.Level == log.EntryLevelError && !(b.away && network) {
			b.trouble = append(b.trouble, e.Entry.Text)
		}
	}
}

// do carries out a person's actions, step by step.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// run runs an action that has a value.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	require.NoError(b.t, err)
	return v
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// shown returns the text of the page.
func (b *tab) shown() string {
	b.t.Helper()
	return eval[string](b, "document.body.innerText")
}

// script runs a script in the page.
func (b *tab) script(source string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](source))
}

// click clicks on the element that an XPath finds, and press on the button with a text.
func (b *tab) click(xpath string) {
	b.t.Helper()
	b.do(chromedp.Click(xpath))
}

func (b *tab) press(text string) {
	b.t.Helper()
	b.click(`//button[text()="` + text + `"]`)
}

// codes are the virtual codes of the keys that are no letters.
var codes = map[string]int64{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowDown": 40,
	"Home": 36}

// shift is the modifier of a key with Shift.
const shift = 8

// key presses a key, with shift or with no modifier.
func (b *tab) key(key string, with int64) {
	b.t.Helper()
	text := key
	if len(key) > 1 {
		text = map[string]string{"Enter": "\r"}[key]
	}
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
		input.DispatchKeyEventTypeKeyUp} {
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Code: key,
			Text: text, Modifiers: with, WindowsVirtualKeyCode: codes[key]})
	}
}

// mouse moves the mouse to a place of the window, presses its button there, or releases it.
func (b *tab) mouse(kind input.DispatchMouseEventType, x, y float64) {
	b.t.Helper()
	call(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y,
		Button: input.MouseButtonLeft, ClickCount: 1})
}

// reason gives the reason that a dialog asks for, and so confirms it.
func (b *tab) reason(text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), text+"\n"))
}

// paste puts a text into the field of the page that sends handoffs.
func (b *tab) paste(text string) {
	b.t.Helper()
	encoded, err := json.Marshal(text)
	require.NoError(b.t, err)
	b.script(fmt.Sprintf(`(() => {
		const field = document.getElementById("handoff");
		field.value = %s;
		field.dispatchEvent(new Event("input", { bubbles: true }));
	})()`, encoded))
}

// downloads has the files that the page saves put into a directory.
func (b *tab) downloads(dir string) {
	b.t.Helper()
	call(b, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior:         browser.SetDownloadBehaviorBehaviorAllow,
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID, DownloadPath: dir,
	})
}

// fill puts a value into the field or the choice with a label.
func (b *tab) fill(label, value string) {
	b.t.Helper()
	b.script(fmt.Sprintf(`(() => {
		const field = [...document.querySelectorAll("label")].find((l) => l.textContent.startsWith(%q)).querySelector("input, select");
		field.value = %q;
		for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
	})()`, label, value))
}

// goTo goes to a page of the console by its route.
func (b *tab) goTo(hash string) {
	b.t.Helper()
	b.script(fmt.Sprintf("location.hash = %q", hash))
}

// sees waits until the page shows every text.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	b.waitUntil("the page does not show "+strings.Join(texts, ", "), func() bool {
		shown := b.shown()
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(shown, text) })
	})
}

// is waits until a JavaScript expression is true.
func (b *tab) is(expression string) {
	b.t.Helper()
	b.waitUntil("it does not come true: "+expression, func() bool { return eval[bool](b, expression) })
}

func (b *tab) waitUntil(wrong string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(pageTimeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			require.Fail(b.t, wrong, "%s\n%s", b.shown(), b.trouble)
		}
	}
}

// picture checks the page as it is now, on a laptop and on a phone, light and dark: it fits, and
// axe-core finds no barrier in it. It keeps pictures if screenshots is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.is(`!document.querySelector(".flash")`)
	for _, on := range []struct {
		prefix        string
		width, height int64
	}{{"phone-", 390, 844}, {"", 1280, 900}} {
		b.do(chromedp.EmulateViewport(on.width, on.height))
		b.is(fmt.Sprintf("innerWidth === %d", on.width))
		require.LessOrEqual(b.t, eval[int64](b, "document.documentElement.scrollWidth"), on.width,
			"%s%s is wider than its window", on.prefix, name)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.accessible(on.prefix + name + ", " + scheme)
			b.keep(on.prefix+name+"-"+scheme+".png", chromedp.FullScreenshot(100))
		}
	}
}

// saveReadmeImage keeps the picture of the page that the README has, in docs/images: with fewer colours,
// by pngquant, it is small.
func (b *tab) saveReadmeImage(name string) {
	b.t.Helper()
	b.scheme("light")
	b.do(chromedp.EmulateViewport(1120, 590))
	b.is("innerWidth === 1120")
	b.keep("console-"+name+".png", chromedp.CaptureScreenshot())
	b.do(chromedp.EmulateViewport(1280, 900))
}

// keep writes a picture of the page to a file if screenshots is set.
func (b *tab) keep(file string, shot chromedp.Action[[]byte]) {
	b.t.Helper()
	if screenshots == "" {
		return
	}
	require.NoError(b.t, os.MkdirAll(screenshots, 0o750))
	png := run(b, shot)
	require.NoError(b.t, os.WriteFile(filepath.Join(screenshots, file), png, 0o640))
}

// axe is axe-core.
var axe = sync.OnceValues(func() ([]byte, error) {
	return os.ReadFile("web/node_modules/axe-core/axe.min.js") // web/build.sh installs it
})

// accessible fails the test if axe-core finds a barrier in the page.
func (b *tab) accessible(page string) {
	b.t.Helper()
	source, err := axe()
	require.NoError(b.t, err)
	if eval[bool](b, `typeof axe === "undefined"`) {
		b.do(chromedp.Evaluate[chromedp.Void](string(source)))
	}
	found := run(b, chromedp.Evaluate[string](`axe.run(document, {resultTypes: ["violations"]}).then(r =>
		r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("\n")).join("\n"))`,
		chromedp.EvalAwaitPromise))
	require.Empty(b.t, found, page)
}

// scheme is light or dark, as a person's machine is set.
func (b *tab) scheme(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// mayBeAway says that the server goes away, which the browser reports.
func (b *tab) mayBeAway() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = true
}
