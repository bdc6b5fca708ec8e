//! The real services: their addresses, which `with.sh` puts into the environment, and the lock under which one test at a time stops them.
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kit::wait::until;

/// Read-locked by tests that need the services, write-locked by the one test that breaks them.
static SERVICES: RwLock<()> = RwLock::new(());

/// A service that a test can break.
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

/// Value of an environment variable. Panics with the command that sets it when it is absent or empty.
pub fn required_variable(name: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| {
        panic!(
            "{name} is not set: these tests need PostgreSQL, Redis and Apache Kafka. `make test` starts them; \
             or start them with `make services` and paste the lines that it prints"
        )
    })
}

/// While it is held, no test breaks the services.
pub struct SharedUse {
    _held: RwLockReadGuard<'static, ()>,
}

impl SharedUse {
    pub fn acquire() -> Self {
        Self { _held: SERVICES.read().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// Stops and starts the services while no other test uses them. Dropped, it starts all of them again.
pub struct ServiceControl {
    folder: String,
    _held: RwLockWriteGuard<'static, ()>,
}

impl ServiceControl {
    pub fn acquire() -> Self {
        let folder = required_variable("POSTHASTE_TEST_SERVICES");
        Self { folder, _held: SERVICES.write().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Sends SIGKILL to the service and its children.
    pub fn kill(&self, service: Service) {
        self.run_script("kill", service);
    }

    /// Starts a service on its previous data and port; returns when it responds.
    pub fn start(&self, service: Service) {
        assert!(self.run_script("start", service), "{service:?} did not start");
    }

    /// Sends SIGSTOP: connections stay open, and nothing responds.
    pub fn pause(&self, service: Service) {
        self.run_script("pause", service);
    }

    pub fn resume(&self, service: Service) {
        self.run_script("resume", service);
    }

    fn run_script(&self, verb: &str, service: Service) -> bool {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services/service.sh");
        let mut command = Command::new(script);
        let status = command.args([verb, service.name(), &self.folder]).stdout(Stdio::null()).status();
        status.expect("the script runs").success()
    }

    /// Resumes and starts every service that does not run.
    pub fn restore(&self) {
        for service in Service::ALL {
            self.run_script("resume", service);
            if !self.is_running(service) {
                self.run_script("start", service);
            }
            if !std::thread::panicking() {
                until("the service runs again", std::time::Duration::from_secs(60), || {
                    self.is_running(service).then_some(())
                });
            }
        }
    }

    fn is_running(&self, service: Service) -> bool {
        self.run_script("status", service)
    }
}

impl Drop for ServiceControl {
    fn drop(&mut self) {
        self.restore();
    }
}
