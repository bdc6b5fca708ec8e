//! The browser of an operator who is logged in to the console of one service.
use std::path::Path;
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use super::chromium::Chromium;
use crate::harness::process::Posthaste;

/// Longest wait for any condition in a page; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// A page of the console.
pub struct OperatorPage {
    browser: Chromium,
    base: String,
}

impl OperatorPage {
    /// Logs in through the form with an administrator's token. None where there is no browser.
    pub fn log_in(test: &str, service: &Posthaste) -> Option<Self> {
        let mut page = Self::visit(test, service, "/console")?;
        page.wait_for("the log-in form", "!!document.querySelector('input[name=token]')");
        page.fill("input[name=token]", &service.http.admin());
        page.click("main form button");
        page.wait_for("the overview", "location.pathname === '/console' && !!document.querySelector('.banner')");
        Some(page)
    }

    /// Opens a page without a session. None where there is no browser.
    pub fn visit(test: &str, service: &Posthaste, path: &str) -> Option<Self> {
        let mut page = Self { browser: Chromium::start(test)?, base: service.http.base().to_owned() };
        page.open(path);
        Some(page)
    }

    pub fn open(&mut self, path: &str) {
        let url = format!("{}{path}", self.base);
        self.browser.command("Page.navigate", json!({"url": url}));
        self.wait_for(
            &format!("{path} is loaded"),
            "document.readyState === 'complete' && location.href !== 'about:blank'",
        );
    }

    /// The value of an expression.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        self.browser.try_evaluate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression is true, also across the loading of another page.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, expression: &str) {
        until(what, WAIT_MAX, || (self.browser.try_evaluate(expression).ok()? == true).then_some(()));
    }

    /// Waits until the text of the page contains this one.
    #[track_caller]
    pub fn wait_for_text(&mut self, text: &str) {
        let expression = format!("document.body.innerText.includes({})", Value::from(text));
        self.wait_for(&format!("the page says: {text}"), &expression);
    }

    pub fn click(&mut self, selector: &str) {
        self.evaluate(&format!("document.querySelector({}).click()", Value::from(selector)));
    }

    pub fn fill(&mut self, selector: &str, text: &str) {
        let (selector, text) = (Value::from(selector), Value::from(text));
        self.evaluate(&format!("document.querySelector({selector}).value = {text}"));
    }

    /// Submits the form of a button after its reason was typed, and waits for the note of the next page.
    pub fn act(&mut self, form: &str, reason: &str, note: &str) {
        self.fill(&format!("{form} input[name=reason]"), reason);
        self.click(&format!("{form} button"));
        self.wait_for_text(note);
    }

    /// Sets the size of the window, and whether the operator prefers dark colours.
    pub fn show_as(&mut self, width: u32, dark: bool) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.browser.command("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.browser.command("Emulation.setEmulatedMedia", media);
    }

    /// Writes a screenshot of the window as a PNG file.
    pub fn screenshot(&mut self, file: &Path) {
        let screenshot = self.browser.command("Page.captureScreenshot", json!({"format": "png"}));
        std::fs::write(file, decoded(screenshot["data"].as_str().expect("text"))).expect("the folder exists");
    }
}

/// The bytes of a base64 text.
fn decoded(text: &str) -> Vec<u8> {
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for byte in text.bytes().take_while(|byte| *byte != b'=') {
        (bits, count) = (bits << 6 | u32::from(sextet(byte)), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
