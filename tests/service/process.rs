//! The real program as a process of its own, on throwaway ground and a free port.
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kit::wait::until;
use serde_json::Value;

use crate::ground::Ground;
use crate::http::Http;

/// What tokens in these tests are signed with.
pub const SECRET: &str = "a-secret-of-the-service-tests-that-nobody-else-uses";

/// A command of the program, ready to run on this ground.
pub fn command(ground: &Ground, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command
        .args(arguments)
        .envs(ground.settings())
        .env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0")
        .env("POSTHASTE__AUTH__HS256_SECRET", SECRET)
        .env("POSTHASTE__LOG__FORMAT", "json")
        .env("POSTHASTE__RATE_LIMIT__ENABLED", "false")
        .env("POSTHASTE__FAULT_INJECTION__ENABLED", "true")
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end: exit code, stdout, stderr.
pub fn run(ground: &Ground, arguments: &[&str]) -> (i32, String, String) {
    finish(&mut command(ground, arguments))
}

/// Runs a prepared command to its end.
pub fn finish(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A running service. Dropped, it is killed.
pub struct Posthaste {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    errors: Arc<Mutex<String>>,
    pub http: Http,
    pub started_in: Duration,
}

impl Posthaste {
    /// Starts on a ground, with more settings, and waits until it is ready.
    pub fn start(ground: &Ground, environment: &[(&str, &str)]) -> Self {
        let begun = Instant::now();
        let mut service = Self::launch(ground, environment, "");
        let address = until("the service listens", Duration::from_secs(20), || {
            if let Some(status) = service.exit() {
                panic!("the service ended with {status}: {}", service.stderr());
            }
            let told = service.logged("listening");
            told.first().map(|event| event["address"].as_str().expect("text").to_owned())
        });
        service.http = Http::new(&address);
        until("the service is ready", Duration::from_secs(20), || service.is_ready().then_some(()));
        service.started_in = begun.elapsed();
        service
    }

    /// Starts and waits for nothing; clients come in at this address.
    pub fn launch(ground: &Ground, environment: &[(&str, &str)], address: &str) -> Self {
        let mut child = command(ground, &["serve", "--migrate"])
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (log, errors): (Arc<Mutex<Vec<Value>>>, Arc<Mutex<String>>) = Default::default();
        let (stdout, mut stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let (lines, text, mut copy) = (Arc::clone(&log), Arc::clone(&errors), copy_of_log(child.id()));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(copy) = &mut copy {
                    writeln!(copy, "{line}").expect("the copy is written");
                }
                let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("a log line is no JSON: {line}"));
                lines.lock().expect("not poisoned").push(event);
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut buffer) {
                text.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self { child, log, errors, http: Http::new(address), started_in: Duration::ZERO }
    }

    /// How it ended, if it has.
    pub fn exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is ours")
    }

    pub fn stderr(&self) -> String {
        self.errors.lock().expect("not poisoned").clone()
    }

    pub fn is_ready(&self) -> bool {
        self.http.try_send("GET", "/readyz", None, &[], None).is_ok_and(|answer| answer.status == 200)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Every log line so far whose `event` is this.
    pub fn logged(&self, event: &str) -> Vec<Value> {
        self.lines(|line| line["event"] == event)
    }

    /// Every log line so far that is wanted.
    pub fn lines(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        // Read while a story fails, too: a second panic would hide why.
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().filter(|line| wanted(line)).cloned().collect()
    }

    /// kill -9, and waits until the process is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(done.expect("kill runs").success());
    }

    /// SIGSTOP, and waits until each of its threads stands still.
    pub fn freeze(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.pid());
        until("every thread is stopped", Duration::from_secs(5), || {
            let mut threads = std::fs::read_dir(&tasks).expect("it runs").map_while(Result::ok);
            let stat =
                |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            threads.all(|thread| stat(thread).contains(") T ")).then_some(())
        });
    }

    /// Waits for the process to end by itself.
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        until("the process ends", limit, || self.exit())
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended(Duration::from_secs(30))
    }

    /// Waits until nothing waits in the outbox and everything in the log was consumed.
    pub fn drain(&self) {
        until("everything has left and was consumed", Duration::from_secs(30), || {
            let metrics = self.http.get("/metrics", None).text;
            let value = |name: &str| {
                let lines = metrics.lines().filter(|line| line.starts_with(name));
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
            };
            let waiting = value("outbox_rows{status=\"PENDING\"}") + value("outbox_rows{status=\"IN_FLIGHT\"}");
            let behind = value("kafka_consumer_lag{");
            (waiting + behind == 0.0 && self.rows(&["PENDING", "IN_FLIGHT", "FAILED"]).is_empty()).then_some(())
        });
    }

    /// Rows of the outbox in these states.
    pub fn rows(&self, states: &[&str]) -> Vec<Value> {
        let rows = |status: &&str| {
            let answer = self.http.get(&format!("/admin/outbox?status={status}"), Some(&self.http.admin()));
            assert_eq!(answer.status, 200, "{}", answer.text);
            answer.json()["rows"].as_array().expect("rows").clone()
        };
        states.iter().flat_map(rows).collect()
    }
}

/// Where a process's log is kept for whoever looks for what went wrong: set POSTHASTE_TEST_LOGS to a folder.
fn copy_of_log(pid: u32) -> Option<File> {
    let folder = std::env::var_os("POSTHASTE_TEST_LOGS")?;
    let name = format!("{}-{pid}.log", std::thread::current().name().unwrap_or("story").replace(':', "_"));
    Some(File::create(PathBuf::from(folder).join(name)).expect("the folder is there"))
}

/// Lines of a process that are shown beside a story that failed.
const LAST_WORDS: usize = 25;

impl Drop for Posthaste {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let words = self.lines(|line| line["level"] == "WARN" || line["level"] == "ERROR");
            let ended = self.child.try_wait().ok().flatten().map(|status| format!(" (ended by itself: {status})"));
            eprintln!("process {}{} said last:", self.child.id(), ended.unwrap_or_default());
            words.iter().skip(words.len().saturating_sub(LAST_WORDS)).for_each(|line| eprintln!("  {line}"));
            // What a library writes that ends the process.
            let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.lines().for_each(|line| eprintln!("  stderr: {line}"));
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
