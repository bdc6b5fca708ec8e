//! What must be there on the broker: made when it is missing, refused with the reason and the remedy when it is wrong.
use kafka::{BrokerProbe, Kafka};
use kit::TestClock;
use ports::Error;
use ports::broker::Broker;
use ports::probe::Probe;
use ports::topics::TopicReader;

use crate::support::{World, make_topic, opened, options, servers};

async fn refused(settings: &[(&str, &str)], partitions: i32) -> String {
    let options = options(&servers(), &TestClock::default());
    make_topic(&options.topic("relay-watermarks"), partitions, settings).await;
    let kafka = Kafka::open(options).expect("what is wrong is on the broker");

    let said = match kafka.ensure_topics(&[]).await {
        Err(Error::Broken(said)) => said,
        other => panic!("it must be refused: {other:?}"),
    };
    assert!(matches!(kafka.open_session(0).await, Err(Error::Broken(_))), "nothing is published without a watermark");
    assert!(matches!(BrokerProbe(kafka).check().await, Err(Error::Broken(_))), "health says so too");
    said
}

#[tokio::test]
async fn a_watermarks_topic_that_forgets_is_refused() {
    for policy in ["delete", "compact,delete"] {
        let said = refused(&[("cleanup.policy", policy)], 4).await;

        assert!(said.contains("relay-watermarks") && said.contains("kafka-configs.sh"), "{said}");
    }
}

#[tokio::test]
async fn a_watermarks_topic_of_another_size_is_refused() {
    let said = refused(&[("cleanup.policy", "compact")], 3).await;

    assert!(said.contains("relay-watermarks") && said.contains("outbox.partitions"), "{said}");
}

#[tokio::test]
async fn missing_topics_are_named_with_the_command_where_they_may_not_be_made() {
    let mut options = options(&servers(), &TestClock::default());
    options.create_topics = false;
    let names = [options.topic("order.events-retry-3"), options.topic("relay-watermarks")];
    let kafka = Kafka::open(options).expect("opened");

    let Err(Error::Broken(said)) = kafka.ensure_topics(&[]).await else { panic!("topics are missing") };

    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    assert!(said.contains("broker.create_topics") && said.contains("cleanup.policy=compact"), "{said}");
}

#[tokio::test]
async fn all_topics_of_the_installation_are_made_and_a_second_time_changes_nothing() {
    let world = World::new().await;
    let mut names = world.kafka.options().event_topics();
    names.push(world.kafka.options().topic("relay-watermarks"));
    names.sort();

    world.kafka.ensure_topics(&[]).await.expect("as they must be");
    let again = opened(world.kafka.options().clone()).await;

    let listed: Vec<String> = again.list().await.expect("listed").into_iter().map(|view| view.name).collect();
    assert_eq!(listed, names);
    let kept = again.replicas().await.expect("told");
    assert_eq!((kept.brokers, kept.too_few().count()), (1, 0));
    let mut told: Vec<&str> = kept.topics.iter().map(|(name, _)| name.as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, names);
}

#[tokio::test]
async fn a_topic_asked_for_by_name_is_made() {
    let world = World::new().await;
    let name = world.kafka.options().topic("another.topic");

    world.kafka.ensure_topics(&[&name]).await.expect("made");

    let listed = world.kafka.list().await.expect("listed");
    assert!(listed.iter().any(|view| view.name == name && view.partitions.len() == 2));
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_answered_with_those_that_do() {
    let world = World::new().await;

    let answer = world.kafka.read("none-such", 0, 0, 1).await;

    let Err(Error::Rejected(said)) = answer else { panic!("{answer:?}") };
    assert!(said.contains(&world.kafka.options().topic("order.events")), "{said}");
}
