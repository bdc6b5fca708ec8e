//! The backend of a service under test: a Redis of its own that syncs each write to the disk before it replies, and Kafka topics of its
//! own.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::kafka;
use crate::harness::ports::free_port;

/// The store and the topics of a service; they outlive its process.
pub struct Backend {
    name: String,
    kafka: String,
    folder: TempDir,
    port: u16,
    redis: Mutex<Child>,
}

impl Backend {
    /// Longest time from the start of the process until it is ready, also after kill -9.
    pub const START_MAX: Duration = Duration::from_secs(20);

    /// Partitions of the outbox: fewer than usual, because each needs a watermark partition in a Kafka that all tests share.
    pub const PARTITIONS: usize = 16;

    pub fn new() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A backend whose Redis has these settings.
    pub fn with(settings: &[&str]) -> Self {
        let kafka = std::env::var("POSTHASTE_TEST_KAFKA");
        let kafka = kafka.expect("POSTHASTE_TEST_KAFKA names a Kafka: `make test` or `make services` starts one");
        let folder = data_folder();
        let port = free_port();
        let redis = Mutex::new(server(folder.path(), port, settings));
        Self { name: format!("redis_{:016x}", rand::random::<u64>()), kafka, folder, port, redis }
    }

    /// The environment variables of every process on this backend. Leases are short, so that dead instances are detected soon.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let settings = [
            ("POSTHASTE__STORE__KIND", "redis".to_owned()),
            ("POSTHASTE__STORE__URL", format!("redis://127.0.0.1:{}", self.port)),
            ("POSTHASTE__BROKER__KIND", "kafka".to_owned()),
            ("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", self.kafka.clone()),
            ("POSTHASTE__BROKER__TOPIC_PREFIX", self.topic("")),
            ("POSTHASTE__BROKER__TOPIC_PARTITIONS", "6".to_owned()),
            ("POSTHASTE__INSTANCE__ID", "one".to_owned()),
            ("POSTHASTE__OUTBOX__PARTITIONS", Self::PARTITIONS.to_string()),
            ("POSTHASTE__OUTBOX__LEASE", "3s".to_owned()),
            ("POSTHASTE__PARTITIONS__HEARTBEAT", "500ms".to_owned()),
            ("POSTHASTE__PARTITIONS__DEAD_AFTER", "2s".to_owned()),
            ("POSTHASTE__BROKER__BREAKER__OPEN", "2s".to_owned()),
        ];
        settings.into()
    }

    /// A topic's name with this backend's prefix.
    pub fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// Every record of `order.events`, in the form of `topic tail`, read without the service.
    pub fn events(&self) -> Vec<Value> {
        kafka::read(&self.kafka, &self.topic("order.events")).iter().map(kafka::as_json).collect()
    }

    /// Appends a record without the service, as another program does.
    pub fn append_record(&self, topic: &str, key: &str, value: &str) {
        kafka::append_record(&self.kafka, &self.topic(topic), key, value);
    }

    /// Sends one inline command to Redis and returns the lines of its reply.
    pub fn redis_command(&self, command: &str) -> Vec<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("Redis listens");
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("Redis responds");
        let mut lines: Vec<String> = reply.lines().map(str::to_owned).collect();
        // The reply to QUIT.
        lines.pop();
        assert!(lines.first().is_some_and(|line| !line.starts_with('-')), "{command}: {lines:?}");
        lines
    }

    /// Gives every event in the outbox a value that breaks its contract.
    pub fn break_event_values(&self) {
        let keys = self.redis_command("KEYS *{store}:row:*");
        for key in keys.iter().filter(|line| line.contains(":row:")) {
            self.redis_command(&format!("HSET {key} y {{}}"));
        }
    }

    /// Gives the events of a type a content type that no record may have. No service runs.
    pub fn break_content_types(&self, kind: &str) {
        let keys = self.redis_command("KEYS *{store}:row:*");
        let rows = keys.iter().filter(|line| line.contains(":row:"));
        for key in rows.filter(|key| self.redis_command(&format!("HGET {key} ty")).contains(&kind.to_owned())) {
            self.redis_command(&format!(r#"HSET {key} xm '[null,"\u0001",null]'"#));
        }
    }

    /// Kills Redis as kill -9 does.
    pub fn kill_redis(&self) {
        let mut redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        redis.kill().and_then(|()| redis.wait()).expect("it can be killed");
    }

    /// Restarts Redis on the data that it wrote.
    pub fn start_redis(&self) {
        let restarted = server(self.folder.path(), self.port, &["--appendonly", "yes", "--appendfsync", "always"]);
        *self.redis.lock().unwrap_or_else(PoisonError::into_inner) = restarted;
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let redis = self.redis.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The process may have ended already.
        let _ = redis.kill();
        let _ = redis.wait();
        kafka::delete_topics(&self.kafka, &self.topic(""));
    }
}

/// Free space that a file system in memory must have.
const SPACE_MIN: u64 = 1 << 30;

/// A folder in memory where there is one. The service gives a write of Redis two seconds, and a flush of a busy disk takes longer; what a
/// killed Redis has written remains in either place.
fn data_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_space = rustix::fs::statvfs(memory).is_ok_and(|system| system.f_bavail * system.f_frsize >= SPACE_MIN);
    let folder = if has_space { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a temporary folder")
}

fn server(folder: &Path, port: u16, settings: &[&str]) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
    command.args(settings).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().expect("redis-server can be started: tests/services/install.sh installs it");
    until("Redis listens", Duration::from_secs(30), || TcpStream::connect(("127.0.0.1", port)).ok());
    child
}
