//! Findings of the doctor about a Kafka cluster of the test's own, to which a broker is added.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::findings::{assert_found, assert_nothing_found, install};
use crate::harness::backend::Backend;
use crate::harness::service_control::required_variable;

/// Marks a folder of throwaway services: the scripts change no other folder.
const MARKER_FILE: &str = ".posthaste-services";

/// A Kafka node in a folder of its own. Dropped, it is stopped, and its folder is deleted.
struct KafkaNode(PathBuf);

impl KafkaNode {
    /// A cluster of one node, or a further broker of this node's cluster.
    fn create(cluster: Option<&KafkaNode>) -> Self {
        let name = format!("kafka-{:08x}", rand::random::<u32>());
        let node = Self(Path::new(&required_variable("POSTHASTE_TEST_SERVICES")).join(name));
        std::fs::create_dir(&node.0).expect("the folder of the services is writable");
        std::fs::write(node.0.join(MARKER_FILE), "").expect("the marker file is written");
        let member_of = cluster.map(|first| ("POSTHASTE_KAFKA_MEMBER_OF", first.read("controller_port")));
        let created = script("service.sh").args(["create", "kafka"]).arg(&node.0).envs(member_of).status();
        assert!(created.expect("the script runs").success(), "a Kafka node did not start");
        node
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.read("port"))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join("kafka").join(file)).expect("the script wrote it").trim().to_owned()
    }
}

fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services").join(name));
    command.stdout(Stdio::null());
    command
}

impl Drop for KafkaNode {
    fn drop(&mut self) {
        // Files that remain are deleted together with the folder of all services.
        let _ = script("down.sh").arg(&self.0).status();
    }
}

#[test]
fn topics_with_fewer_replicas_than_the_brokers_permit_are_found() {
    let (backend, first) = (Backend::new(), KafkaNode::create(None));
    let address = first.address();
    let environment = [("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", address.as_str())];
    install(&backend, &environment);
    // One replica is all that one broker permits.
    assert_nothing_found(&backend, &environment);

    let _second = KafkaNode::create(Some(&first));

    let topic = format!("{} has 1", backend.topic("order.events"));
    assert_found(&backend, &environment, "replicas", "brokers: 2");
    assert_found(&backend, &environment, "replicas", &topic);
}
