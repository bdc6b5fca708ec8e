//! The compiled program as a child process with a temporary backend and a free port.
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until};
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::http::{Http, SECRET};

/// A command of the program with the settings of a backend.
pub fn command(backend: &Backend, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command
        .args(arguments)
        .envs(backend.settings())
        .env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0")
        .env("POSTHASTE__AUTH__HS256_SECRET", SECRET)
        .env("POSTHASTE__LOG__FORMAT", "json")
        .env("POSTHASTE__RATE_LIMIT__ENABLED", "false")
        .env("POSTHASTE__FAULT_INJECTION__ENABLED", "true")
        .envs(LIMITS.map(|(name, limit)| (name, setting(limit))))
        .env("POSTHASTE__CONSUMER__POST__TIMEOUT", call_setting(Duration::from_secs(5)))
        .env("POSTHASTE__TRACING__TIMEOUT", call_setting(Duration::from_secs(5)))
        .stdin(Stdio::null());
    command
}

/// Limits of the product with their defaults, which a slow machine exceeds: a test that needs one sets it.
const LIMITS: [(&str, Duration); 3] = [
    ("POSTHASTE__HTTP__REQUEST_TIMEOUT", Duration::from_secs(10)),
    ("POSTHASTE__HTTP__HEADER_TIMEOUT", Duration::from_secs(5)),
    ("POSTHASTE__FAILOVER__PROBE_TIMEOUT", Duration::from_secs(2)),
];

/// Longest time of a call to another system that the product accepts as a setting.
const CALL_MAX: Duration = Duration::from_secs(10);

/// A lease that no pause of the machine exceeds, for tests of what one uninterrupted attempt does.
pub const LONG_LEASE: (&str, &str) = ("POSTHASTE__OUTBOX__LEASE", "60s");

/// The value of a setting with this limit on an idle machine.
pub fn setting(limit: Duration) -> String {
    format!("{}ms", scaled(limit).as_millis())
}

/// As [`setting`], for a call to another system.
pub fn call_setting(limit: Duration) -> String {
    format!("{}ms", scaled(limit).min(CALL_MAX).as_millis())
}

/// Runs a command to its end; returns exit code, stdout and stderr. It is repeated while a store or a broker does not respond within its limits,
/// which a busy machine exceeds: the command has changed nothing then.
pub fn run(backend: &Backend, arguments: &[&str]) -> (i32, String, String) {
    run_with(backend, arguments, &[])
}

/// As [`run`], with additional settings.
pub fn run_with(backend: &Backend, arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let started = Instant::now();
    loop {
        let (code, stdout, stderr) = finish(command(backend, arguments).envs(environment.iter().copied()));
        let is_delayed = stdout.is_empty() && is_unanswered(&stderr) && !stderr.contains("then it failed");
        if !is_delayed || started.elapsed() >= scaled(REPEAT_MAX) {
            return (code, stdout, stderr);
        }
    }
}

/// Whether the messages of a command say that its store or its broker has not responded in time.
pub fn is_unanswered(stderr: &str) -> bool {
    UNANSWERED.iter().any(|text| stderr.contains(text))
}

/// Longest run of a command that ends by itself.
const COMMAND_MAX: Duration = Duration::from_secs(180);

/// What a command says when its store or broker does not respond.
const UNANSWERED: [&str; 3] = ["not reachable: ", "is not available: ", " cannot be reached: "];

/// Longest time for which a command is repeated.
const REPEAT_MAX: Duration = Duration::from_secs(30);

/// Runs a prepared command to its end; returns the same. Panics if it does not end.
pub fn finish(command: &mut Command) -> (i32, String, String) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let (pid, (ended, end)) = (child.id().to_string(), mpsc::channel::<()>());
    let watch = std::thread::spawn(move || {
        let is_late = end.recv_timeout(scaled(COMMAND_MAX)) == Err(RecvTimeoutError::Timeout);
        is_late && Command::new("kill").args(["-KILL", &pid]).status().is_ok()
    });
    let output = child.wait_with_output().expect("its output is read");
    drop(ended);
    assert!(!watch.join().expect("no panic"), "{command:?} did not end: {output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Longest until the output of a process that has ended is read.
const READ_MAX: Duration = Duration::from_secs(10);

/// Longest until a log line is written and read, with the work that it reports.
const LOGGED_MAX: Duration = Duration::from_secs(60);

/// A running service process. Dropped, it is killed.
pub struct Posthaste {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    errors: Arc<Mutex<String>>,
    /// The threads that read stdout and stderr until the process closes them.
    readers: [JoinHandle<()>; 2],
    pub http: Http,
    pub started_in: Duration,
}

impl Posthaste {
    /// Starts on a backend with additional settings, and waits until it is ready.
    pub fn start(backend: &Backend, environment: &[(&str, &str)]) -> Self {
        Self::start_command(backend, "serve", environment)
    }

    /// As [`Posthaste::start`], with the command that runs the service: `serve`, or `relay` without the order API.
    pub fn start_command(backend: &Backend, name: &str, environment: &[(&str, &str)]) -> Self {
        let started = Instant::now();
        Self::launch(backend, name, environment, "").until_ready(started)
    }

    /// As [`Posthaste::start`], with a configuration file. The harness turns rate limits off; here the file decides.
    pub fn start_with_file(backend: &Backend, file: &Path) -> Self {
        let mut command = command(backend, &["serve", "--migrate", "--config"]);
        Self::start_prepared(command.arg(file).env_remove("POSTHASTE__RATE_LIMIT__ENABLED"))
    }

    /// Starts a prepared command, and waits until it is ready.
    pub fn start_prepared(command: &mut Command) -> Self {
        let started = Instant::now();
        Self::spawn(command, "").until_ready(started)
    }

    fn until_ready(self, started: Instant) -> Self {
        let mut service = self;
        let address = until("the service listens", Duration::from_secs(20), || {
            if let Some(status) = service.exit() {
                panic!("the service ended with {status}: {}", service.stderr());
            }
            let events = service.logged("listening");
            events.first().map(|event| event["address"].as_str().expect("text").to_owned())
        });
        service.http = Http::new(&address);
        until("the service is ready", Duration::from_secs(20), || service.is_ready().then_some(()));
        service.started_in = started.elapsed();
        service
    }

    /// Starts a command and does not wait; `address` is its listen address from the settings.
    pub fn launch(backend: &Backend, name: &str, environment: &[(&str, &str)], address: &str) -> Self {
        Self::spawn(command(backend, &[name, "--migrate"]).envs(environment.iter().copied()), address)
    }

    fn spawn(command: &mut Command, address: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let (log, errors): (Arc<Mutex<Vec<Value>>>, Arc<Mutex<String>>) = Default::default();
        let (stdout, mut stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let (lines, text, mut copy) = (Arc::clone(&log), Arc::clone(&errors), copy_of_log(child.id()));
        let log_reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(copy) = &mut copy {
                    writeln!(copy, "{line}").expect("the copy is written");
                }
                let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("a log line is not JSON: {line}"));
                lines.lock().expect("not poisoned").push(event);
            }
        });
        let error_reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut buffer) {
                text.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        let readers = [log_reader, error_reader];
        Self { child, log, errors, readers, http: Http::new(address), started_in: Duration::ZERO }
    }

    /// The exit status, or none while the process runs.
    pub fn exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child of this process")
    }

    pub fn stderr(&self) -> String {
        self.errors.lock().expect("not poisoned").clone()
    }

    pub fn is_ready(&self) -> bool {
        self.http.send_once("GET", "/readyz", None, &[], None).is_ok_and(|response| response.status == 200)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Every log line so far with this `event`.
    pub fn logged(&self, event: &str) -> Vec<Value> {
        self.log_lines(|line| line["event"] == event)
    }

    /// Waits for this many log lines with this `event` and asserts that there are no more. A line may be later than the effect that it reports.
    #[track_caller]
    pub fn await_logged(&self, event: &str, count: usize) -> Vec<Value> {
        let lines = until(event, LOGGED_MAX, || Some(self.logged(event)).filter(|lines| lines.len() >= count));
        assert_eq!(lines.len(), count, "{event}");
        lines
    }

    /// Every log line so far that satisfies a condition.
    pub fn log_lines(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        // Also called while a test panics: a second panic would hide the first.
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().filter(|line| wanted(line)).cloned().collect()
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child of this process");
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(done.expect("kill runs").success());
    }

    /// Sends SIGSTOP and waits until each of its threads is stopped.
    pub fn freeze(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.pid());
        until("every thread is stopped", Duration::from_secs(20), || {
            let mut threads = std::fs::read_dir(&tasks).expect("it runs").map_while(Result::ok);
            let stat =
                |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            threads.all(|thread| stat(thread).contains(") T ")).then_some(())
        });
    }

    /// Waits until the process has ended by itself and its last line is read.
    pub fn await_exit(&mut self, limit: Duration) -> ExitStatus {
        let status = until("the process ends", limit, || self.exit());
        until("its output is read", READ_MAX, || self.readers.iter().all(JoinHandle::is_finished).then_some(()));
        status
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.await_exit(Duration::from_secs(30))
    }

    /// Waits until the outbox has no unsent row and the consumers report no lag. They report it up to half a second late, so an event that
    /// was sent a moment ago may not be consumed yet: a test that needs this waits for its effect.
    pub fn drain(&self) {
        until("every event is sent, and no consumer reports a lag", Duration::from_secs(30), || {
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

    /// Outbox rows with one of these statuses.
    pub fn rows(&self, states: &[&str]) -> Vec<Value> {
        let rows = |status: &&str| {
            let response = self.http.get(&format!("/admin/outbox?status={status}"), Some(&self.http.admin()));
            assert_eq!(response.status, 200, "{}", response.text);
            response.json()["rows"].as_array().expect("rows").clone()
        };
        states.iter().flat_map(rows).collect()
    }
}

/// A copy of the process's log for inspection, when POSTHASTE_TEST_LOGS names a folder.
fn copy_of_log(pid: u32) -> Option<File> {
    let folder = std::env::var_os("POSTHASTE_TEST_LOGS")?;
    let name = format!("{}-{pid}.log", std::thread::current().name().unwrap_or("story").replace(':', "_"));
    Some(File::create(PathBuf::from(folder).join(name)).expect("the folder exists"))
}

/// Number of warnings and errors that a failed test prints for each process.
const PRINTED_MAX: usize = 25;

impl Drop for Posthaste {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = self.log_lines(|line| line["level"] == "WARN" || line["level"] == "ERROR");
            let ended = self.child.try_wait().ok().flatten().map(|status| format!(" (ended by itself: {status})"));
            eprintln!("process {}{} logged last:", self.child.id(), ended.unwrap_or_default());
            lines.iter().skip(lines.len().saturating_sub(PRINTED_MAX)).for_each(|line| eprintln!("  {line}"));
            // A library that aborts the process writes to stderr.
            let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.lines().for_each(|line| eprintln!("  stderr: {line}"));
        }
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
