//! The demo: its output, and that it never uses or changes another installation.
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::{command, finish, run};

fn demo(backend: &Backend) -> Command {
    let mut demo = command(backend, &["demo"]);
    demo.env_remove("POSTHASTE__AUTH__HS256_SECRET");
    demo
}

/// Runs of a demo that must reach its end.
const RUNS_MAX: usize = 5;

/// Runs a demo to its end on an empty folder, and again on another one when a step took longer than the demo waits: a busy machine delays some
/// runs, a defect all of them. Returns the folder of the last run, its exit code and its output.
fn finish_demo(prepare: impl Fn(&Backend) -> Command) -> (Backend, (i32, String, String)) {
    let mut runs = 0;
    loop {
        let backend = Backend::new();
        let result = finish(&mut prepare(&backend));
        runs += 1;
        if runs == RUNS_MAX || !result.2.contains("gave up after") {
            return (backend, result);
        }
    }
}

fn short_demo(backend: &Backend) -> Command {
    let mut demo = demo(backend);
    demo.args(["--once", "--orders", "1"]);
    demo
}

#[test]
fn the_demo_shows_every_step_and_with_once_no_command_that_needs_the_service() {
    let (_, (code, stdout, stderr)) = finish_demo(|backend| {
        let mut once = demo(backend);
        once.arg("--once");
        once
    });
    assert_eq!(code, 0, "{stderr}");
    for text in ["→ OrderAggregate →", "→ PartitionWorker", "→ processed_events", "panic", "it runs again"] {
        assert!(stdout.contains(text), "{text} is missing in: {stdout}");
    }
    for text in ["Place an order", "curl", "kill -9", "/console"] {
        assert!(!stdout.contains(text), "{text} needs the service, which has ended: {stdout}");
    }
}

/// A demo that keeps running, with the environment of a shell, and the text that it has printed.
struct RunningDemo {
    process: Child,
    printed: String,
}

impl RunningDemo {
    fn start(backend: &Backend, path: &str) -> Self {
        Self::of(demo(backend), backend, path)
    }

    fn of(mut command: Command, backend: &Backend, path: &str) -> Self {
        command.current_dir(backend.data_folder().parent().expect("a folder")).env("PATH", path);
        command.args(["--orders", "1"]).stdout(Stdio::piped());
        // It ends when a step takes longer than it waits, which a busy machine does to some runs.
        let started = (0..RUNS_MAX).find_map(|_| Self::spawn(&mut command));
        started.expect("the demo reaches its last step")
    }

    /// Starts the demo, and returns when it has printed all; `None` when it has ended before.
    fn spawn(command: &mut Command) -> Option<Self> {
        let mut process = command.spawn().expect("the demo starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut demo = Self { process, printed: String::new() };
        for line in lines {
            demo.printed += &line.expect("a line");
            demo.printed += "\n";
            if demo.printed.contains("Ctrl-C") {
                return Some(demo);
            }
        }
        None
    }

    /// The commands that it prints from the line that begins with a program and a word, with the lines that continue them.
    fn command(&self, begin: &str) -> String {
        let mut lines = self.printed.lines().skip_while(|line| !(line.starts_with("  ") && line.contains(begin)));
        let mut command = String::new();
        for line in lines.by_ref() {
            command += line;
            command.push('\n');
            if !line.ends_with('\\') {
                break;
            }
        }
        command
    }
}

impl Drop for RunningDemo {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folder_of_the_program() -> String {
    Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().expect("a folder").display().to_string()
}

#[test]
fn commands_of_the_demo_work_when_pasted() {
    let backend = Backend::new();
    // The program is not on this PATH, so the demo names the path of the program.
    let path = std::env::var("PATH").expect("a PATH");
    let demo = RunningDemo::start(&backend, &path);
    let paste = |commands: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]).envs(backend.settings()).env("PATH", &path);
        shell.current_dir(backend.data_folder().parent().expect("a folder"));
        let (code, stdout, stderr) = finish(&mut shell);
        assert_eq!(code, 0, "{commands}{stderr}");
        stdout
    };

    let order: Value = serde_json::from_str(&paste(&demo.command("curl -s "))).expect("an order");
    assert_eq!(order["status"], "PENDING", "{order}");
    let events = until("both events are in the topic", Duration::from_secs(10), || {
        let events = paste(&demo.command("topic tail "));
        (events.lines().count() >= 2).then_some(events)
    });
    assert!(events.contains(order["id"].as_str().expect("an id")), "{events}");
    paste(&demo.command("actors kill "));
    assert!(paste(&demo.command("actors tree")).contains("/relay/partition-worker-"));
    paste(&demo.command("kill -9 "));
}

/// Runs the printed command that contains `begin`, in a shell with these variables.
fn pasted(demo: &RunningDemo, begin: &str, backend: &Backend, path: &str, variables: &[(&str, &str)]) -> String {
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &demo.command(begin)]).envs(backend.settings()).env("PATH", path);
    shell.envs(variables.iter().copied()).current_dir(backend.data_folder().parent().expect("a folder"));
    let (code, stdout, stderr) = finish(&mut shell);
    assert_eq!(code, 0, "{variables:?}: {stderr}");
    stdout
}

/// Environment variables of a shell, and arguments of the demo that runs in it.
type DemoCase<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn the_demos_commands_work_whatever_key_and_file_are_configured() {
    let path = std::env::var("PATH").expect("a PATH");
    let public_key = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/tests/keys/ec_public.pem");
    let cases: [DemoCase<'_>; 4] = [
        (&[("POSTHASTE__AUTH__HS256_SECRET", "a secret of the operator, exported in both shells")], &[]),
        (&[("POSTHASTE__AUTH__PUBLIC_KEY_FILE", public_key)], &[]),
        (&[("POSTHASTE__AUTH__JWKS_URL", "https://issuer.invalid/jwks")], &[]),
        (&[], &["--config", "my demo.toml"]),
    ];
    for (variables, arguments) in cases {
        let backend = Backend::new();
        let folder = backend.data_folder().parent().expect("a folder").to_path_buf();
        std::fs::write(folder.join("my demo.toml"), "[auth]\nissuer = \"us\"\n").expect("a file");
        let mut process = demo(&backend);
        process.args(arguments).envs(variables.iter().copied());
        let demo = RunningDemo::of(process, &backend, &path);

        let order = pasted(&demo, "curl -s ", &backend, &path, variables);
        let order: Value = serde_json::from_str(&order).expect("an order");
        assert_eq!(order["status"], "PENDING", "{variables:?}: {order}");
        let actors = pasted(&demo, "actors tree", &backend, &path, variables);
        assert!(actors.contains("/relay/partition-worker-"), "{actors}");
    }
}

#[test]
fn the_demo_explains_the_panic_before_it_happens_and_fits_80_columns() {
    let backend = Backend::new();
    let path = format!("{}:{}", folder_of_the_program(), std::env::var("PATH").expect("a PATH"));
    let demo = RunningDemo::start(&backend, &path);

    let (explained, restarted) = (demo.printed.find("panics, on purpose"), demo.printed.find("it runs again"));
    assert!(explained.is_some() && explained < restarted, "{}", demo.printed);
    // The folder of the test and the token are as long as they are.
    let is_data = |line: &str| line.starts_with("embedded in ") || line.trim().starts_with("eyJ");
    let wide: Vec<&str> = demo.printed.lines().filter(|line| line.chars().count() > 80 && !is_data(line)).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn a_second_service_on_the_demos_folder_names_the_remedy_at_once() {
    let backend = Backend::new();
    let demo = RunningDemo::start(&backend, &std::env::var("PATH").expect("a PATH"));
    let mut second = command(&backend, &["serve", "--dev"]);
    second.env_remove("POSTHASTE__AUTH__HS256_SECRET").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut second = second.spawn().expect("it starts");

    let mut lines = BufReader::new(second.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let held = lines.find(|line| line.contains("instance_held")).expect("an event");
    let event: Value = serde_json::from_str(&held).expect("a line");
    assert!(event["wait_ms"].as_u64() > Some(0), "it is logged before the wait ends: {held}");
    assert!(held.contains(&demo.process.id().to_string()) && held.contains("POSTHASTE__STORE__PATH="), "{held}");
    let output = second.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("stop that process, or") && stderr.contains("POSTHASTE__STORE__PATH="), "{stderr}");
}

#[test]
fn the_demo_runs_embedded_and_names_each_option_it_ignores() {
    let configured = [
        ("POSTHASTE__STORE__KIND", "postgres"),
        ("POSTHASTE__STORE__URL", "postgres://unused@127.0.0.1:1/production"),
        ("POSTHASTE__BROKER__KIND", "kafka"),
        ("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", "127.0.0.1:1"),
        ("POSTHASTE__CACHE__KIND", "redis"),
        ("POSTHASTE__REDIS__URL", "redis://127.0.0.1:1"),
    ];

    let (backend, (code, stdout, stderr)) = finish_demo(|backend| {
        let mut short = short_demo(backend);
        short.envs(configured);
        short
    });

    assert_eq!(code, 0, "{stderr}");
    let folder = backend.data_folder().canonicalize().expect("the folder exists");
    assert!(stdout.contains(&format!("embedded in {}", folder.display())), "{stdout}");
    for unused in ["store.kind = postgres", "broker.kind = kafka", "cache.kind = redis"] {
        assert!(stderr.contains(&format!("{unused} is not used")), "{unused} is missing in: {stderr}");
    }
    assert_eq!(backend.events().len(), 1);
}

#[test]
fn the_demo_refuses_a_store_that_uses_another_broker() {
    let (backend, (code, _, stderr)) = finish_demo(short_demo);
    assert_eq!(code, 0, "{stderr}");

    let (code, _, stderr) = finish(short_demo(&backend).env("POSTHASTE__BROKER__KIND", "none"));

    assert!(code == 1 && stderr.contains("POSTHASTE__STORE__PATH="), "{code}: {stderr}");
    assert_eq!(backend.events().len(), 1, "nothing was added");
}

#[test]
fn a_demo_that_cannot_finish_names_the_option_to_check() {
    let backend = Backend::new();
    assert_eq!(run(&backend, &["demo", "--orders", "0"]).0, 2);

    let stderr = until("it gives up at the event that is not consumed", Duration::from_secs(120), || {
        let (code, _, stderr) = finish(short_demo(&backend).env("POSTHASTE__CONSUMER__COUNT", "0"));
        assert!(code == 1 && stderr.contains("gave up after 10 s"), "{code}: {stderr}");
        // A busy machine may delay an earlier step for so long.
        stderr.contains("was consumed; look at").then_some(stderr)
    });
    assert!(stderr.contains("consumer.count") && !stderr.contains("{\""), "no raw response: {stderr}");
}

#[test]
fn a_signal_during_the_demo_drains_its_service() {
    let backend = Backend::new();
    let mut process = demo(&backend).args(["--orders", "100000"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    lines.find(|line| line.starts_with("posthaste runs at ")).expect("it has started");

    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();

    assert!(sent.is_ok_and(|status| status.success()));
    // Reads its output until it ends: a full pipe would block it.
    let rest = std::thread::spawn(move || lines.count());
    let status = until("the demo ends", Duration::from_secs(30), || process.try_wait().expect("a child of this test"));
    assert_eq!(status.code(), Some(0));
    assert!(rest.join().is_ok());
}
