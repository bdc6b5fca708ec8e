//! Executes the command blocks of the documents in order, as a reader does: `sh` blocks in one shell, `sh,service` blocks in the background.
use std::fs::File;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use kit::wait::{scaled, until};
use tempfile::TempDir;

use crate::harness::ports::free_port;
use crate::harness::process::setting;

/// Documents with command blocks, each executed by a test below.
const EXECUTED: [&str; 9] = [
    "README.md",
    "docs/configure.md",
    "docs/deploy.md",
    "docs/failures.md",
    "docs/operate.md",
    "docs/publish/over-http.md",
    "docs/publish/topics.md",
    "docs/publish/webhooks.md",
    "docs/read.md",
];

/// Longest duration of the blocks between two services.
const COMMANDS_MAX: Duration = Duration::from_secs(60);

#[test]
fn commands_of_the_readme_work() {
    DocumentRunner::new().execute_blocks("README.md");
}

#[test]
fn commands_of_configure_md_work() {
    DocumentRunner::new().execute_blocks("docs/configure.md");
}

#[test]
fn commands_of_deploy_md_work() {
    DocumentRunner::new().execute_blocks("docs/deploy.md");
}

#[test]
fn commands_of_failures_md_work() {
    DocumentRunner::new().execute_blocks("docs/failures.md");
}

#[test]
fn commands_of_operate_md_work() {
    DocumentRunner::new().execute_blocks("docs/operate.md");
}

#[test]
fn commands_of_publish_over_http_work() {
    DocumentRunner::new().execute_blocks("docs/publish/over-http.md");
}

#[test]
fn commands_of_topics_md_work() {
    DocumentRunner::new().execute_blocks("docs/publish/topics.md");
}

#[test]
fn commands_of_read_md_work() {
    DocumentRunner::new().execute_blocks("docs/read.md");
}

#[test]
fn commands_of_webhooks_md_work() {
    DocumentRunner::new().execute_blocks("docs/publish/webhooks.md");
}

#[test]
fn every_document_with_command_blocks_is_executed() {
    let mut documents = Vec::new();
    collect(root(), false, &mut documents);
    collect(&root().join("docs"), true, &mut documents);

    let with_commands = documents.iter().filter(|path| !blocks(&read(path)).is_empty());
    let mut names: Vec<String> =
        with_commands.map(|path| path.strip_prefix(root()).expect("below the root").display().to_string()).collect();
    names.sort();

    assert_eq!(names, EXECUTED);
}

/// A command block, in the order of the document.
#[derive(Debug)]
enum Block {
    /// Runs to its end.
    Commands(String),
    /// Runs in the background until the next service or the end of the document.
    Service(String),
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn collect(folder: &Path, deep: bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && deep {
            collect(&path, deep, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

fn blocks(document: &str) -> Vec<Block> {
    let fenced = document.split("\n```").skip(1).step_by(2);
    let block = |text: &str| {
        let (language, commands) = text.split_once('\n')?;
        match language {
            "sh" => Some(Block::Commands(commands.to_owned())),
            "sh,service" => Some(Block::Service(commands.to_owned())),
            _ => None,
        }
    };
    fenced.filter_map(block).collect()
}

/// Executes the blocks of a document in an empty folder, with a free port, and the built binary on the PATH.
struct DocumentRunner {
    folder: TempDir,
    address: String,
    service: Option<Service>,
}

impl DocumentRunner {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("clone")).expect("a folder");
        for name in ["config", "docker"] {
            symlink(root().join(name), folder.path().join("clone").join(name)).expect("a link");
        }
        let address = format!("127.0.0.1:{}", free_port());
        Self { folder, address, service: None }
    }

    fn execute_blocks(mut self, name: &str) {
        let blocks = blocks(&read(&root().join(name)));
        assert!(!blocks.is_empty(), "{name} has no command block");
        for block in blocks {
            match block {
                Block::Commands(commands) => self.run(name, &commands),
                Block::Service(command) => self.serve(name, &command),
            }
        }
        self.stop(name);
    }

    /// Variables that a block sets are exported for the blocks after it.
    fn run(&self, name: &str, commands: &str) {
        let script = format!("set -a\n. \"$VARIABLES\"\n{commands}\nexport -p >\"$VARIABLES\"");
        let seconds = scaled(COMMANDS_MAX).as_secs().to_string();
        let mut shell = self.shell(&["timeout", "--kill-after=5", &seconds, "bash"], &script);
        let output = shell.output().expect("bash runs");
        assert!(
            output.status.success(),
            "{name}: {}\n{commands}\n--- stdout\n{}\n--- stderr\n{}\n--- service\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
    }

    fn serve(&mut self, name: &str, command: &str) {
        self.stop(name);
        // The trap keeps bash alive until the service has ended, so that its exit code is seen.
        let script = format!(". \"$VARIABLES\"\ntrap : TERM\n{command}");
        let log = File::create(self.folder.path().join("service.log")).expect("a log file");
        let mut shell = self.shell(&["bash"], &script);
        shell.stdout(log.try_clone().expect("a handle")).stderr(log).process_group(0);
        self.service = Some(Service(shell.spawn().expect("bash runs")));
        let url = format!("http://{}/readyz", self.address);
        until("the service of the document is ready", Duration::from_secs(20), || {
            let service = self.service.as_mut().expect("it was started");
            let ended = service.0.try_wait().expect("it is a child of this test");
            assert!(ended.is_none(), "{name}: {command} ended: {}", self.log());
            let probe = Command::new("curl").args(["-fs", "-o", "/dev/null", &url]).status();
            probe.expect("curl runs").success().then_some(())
        });
    }

    fn stop(&mut self, name: &str) {
        if let Some(mut service) = self.service.take() {
            service.signal("TERM");
            let ended = until("the service ends", Duration::from_secs(30), || service.exit());
            assert!(ended.success(), "{name}: the service ended with {ended}: {}", self.log());
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("service.log")).unwrap_or_default()
    }

    /// A shell in this folder. Documents name the default address; this test uses a free one.
    fn shell(&self, program: &[&str], script: &str) -> Command {
        let script = script.replace("127.0.0.1:8080", &self.address);
        let variables = self.folder.path().join("variables");
        if !variables.exists() {
            File::create(&variables).expect("a file");
        }
        let binary = Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().expect("a folder");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a PATH"));
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(self.folder.path().join("clone"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("USER", "reader")
            .env("VARIABLES", &variables)
            .env("POSTHASTE__HTTP__LISTEN", &self.address)
            .env("POSTHASTE__HTTP__REQUEST_TIMEOUT", setting(Duration::from_secs(10)))
            .env("POSTHASTE__HTTP__HEADER_TIMEOUT", setting(Duration::from_secs(5)))
            .stdin(Stdio::null());
        command
    }
}

/// A service with its shell, in a process group of their own.
struct Service(Child);

impl Service {
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.0.id());
        let sent = Command::new("kill").args(["-s", name, "--", &group]).stderr(Stdio::null()).status();
        sent.expect("kill runs");
    }

    fn exit(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("it is a child of this test")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.exit().is_none() {
            self.signal("KILL");
            // Only reaps: the process was killed.
            let _ = self.0.wait();
        }
    }
}
