//! Headless Chromium, driven by its DevTools protocol over two pipes: JSON messages, each ended by a zero byte. No driver program is needed.
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kit::wait::scaled;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for a reply of the browser.
const REPLY_MAX: Duration = Duration::from_secs(60);
/// Programs that are tried in this order.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A running browser with one page. Dropped, it is killed.
pub struct Chromium {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    last_id: u64,
    _profile: TempDir,
}

impl Chromium {
    /// Starts the browser. Without one the test is skipped: a line with its name goes to stderr, past the capture of the test harness. Where
    /// `POSTHASTE_REQUIRE_CHROMIUM` is set, it fails instead.
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            let notice =
                format!("skipped: {test}: there is no Chromium; tests/services/install.sh chromium installs it\n");
            assert!(std::env::var_os("POSTHASTE_REQUIRE_CHROMIUM").is_none(), "{notice}");
            std::io::stderr().write_all(notice.as_bytes()).expect("stderr is open");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary folder");
        let mut child = launch(&program, &profile);
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the browser sends JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { child, input, messages, session: String::new(), last_id: 0, _profile: profile };
        let target = browser.command("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.command("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        browser.command("Page.enable", json!({}));
        Some(browser)
    }

    /// Sends a command and waits for its result.
    pub fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.try_command(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command; an error when the browser refuses it, for example because the page is being replaced.
    pub fn try_command(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = serde_json::to_vec(&message).expect("JSON");
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser runs");
        loop {
            let mut reply = self.messages.recv_timeout(scaled(REPLY_MAX)).expect("the browser answers");
            if reply["id"] == self.last_id {
                return if reply["error"].is_null() {
                    Ok(reply["result"].take())
                } else {
                    Err(reply["error"].to_string())
                };
            }
        }
    }

    /// The value of an expression in the page; promises are awaited. An error when it throws, or when the page is being replaced.
    pub fn try_evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut result = self.try_command("Runtime.evaluate", parameters)?;
        match &result["exceptionDetails"] {
            Value::Null => Ok(result["result"]["value"].take()),
            exception => Err(exception.to_string()),
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // The browser may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let found = |name: &&str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    std::env::var_os("POSTHASTE_CHROMIUM").map(PathBuf::from).or_else(|| PROGRAMS.iter().find_map(found))
}

/// The browser reads commands from descriptor 3 and writes to 4. The shell gives it the pipes of its own input and output there.
fn launch(program: &PathBuf, profile: &TempDir) -> Child {
    Command::new("sh")
        .arg("-c")
        .arg(r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#)
        .arg(program)
        .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell")
}
