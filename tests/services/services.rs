//! The real services under these stories: where they are, who may break them, and how. Found in the environment, as `with.sh` leaves it.
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kit::wait::until;

/// Held by everyone who stands on the services, and by nobody else while somebody breaks them.
static PEACE: RwLock<()> = RwLock::new(());

/// A service that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Postgres,
    Redis,
    Kafka,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Postgres, Service::Redis, Service::Kafka];

    fn name(self) -> &'static str {
        match self {
            Service::Postgres => "postgres",
            Service::Redis => "redis",
            Service::Kafka => "kafka",
        }
    }
}

/// Where something is. Fails with what to do where it is nowhere.
pub fn found(name: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| {
        panic!(
            "{name} is not set: these stories need PostgreSQL, Redis and Apache Kafka. `make test` starts them; \
             or start them with `make services` and paste what it prints"
        )
    })
}

/// The right to rely on the services.
pub struct Peace {
    _held: RwLockReadGuard<'static, ()>,
}

impl Peace {
    pub fn hold() -> Self {
        Self { _held: PEACE.read().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// The right to break the services. Given back, everything runs again.
pub struct War {
    folder: String,
    _held: RwLockWriteGuard<'static, ()>,
}

impl War {
    pub fn declare() -> Self {
        let folder = found("POSTHASTE_TEST_SERVICES");
        Self { folder, _held: PEACE.write().unwrap_or_else(PoisonError::into_inner) }
    }

    /// kill -9.
    pub fn kill(&self, service: Service) {
        self.control("kill", service);
    }

    /// On the data and the port it had; returns when it answers.
    pub fn start(&self, service: Service) {
        assert!(self.control("start", service), "{service:?} did not start");
    }

    /// Connected, and silent.
    pub fn pause(&self, service: Service) {
        self.control("pause", service);
    }

    pub fn resume(&self, service: Service) {
        self.control("resume", service);
    }

    fn control(&self, verb: &str, service: Service) -> bool {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services/service.sh");
        let mut command = Command::new(script);
        let done = command.args([verb, service.name(), &self.folder]).stdout(Stdio::null()).status();
        done.expect("the script runs").success()
    }

    /// Everything runs again.
    pub fn mend(&self) {
        for service in Service::ALL {
            self.control("resume", service);
            if !self.runs(service) {
                self.control("start", service);
            }
            if !std::thread::panicking() {
                until("the service runs again", std::time::Duration::from_secs(60), || {
                    self.runs(service).then_some(())
                });
            }
        }
    }

    fn runs(&self, service: Service) -> bool {
        self.control("status", service)
    }
}

impl Drop for War {
    fn drop(&mut self) {
        self.mend();
    }
}
