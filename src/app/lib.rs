//! Use cases and policies: pure but for port calls. They decide and return; they never log, spawn, or read a clock except through a port.

pub mod contract;
pub mod dispatch;
pub mod error;
pub mod health;
pub mod queries;
pub mod units;

pub mod admission {
    //! Whether a request is admitted: rate limits, and the gate that holds writes back.
    pub mod rate_limit;
    pub mod tier_policies;
    pub mod write_gate;
}

pub mod commands {
    //! Commands that change orders or publish events of other services. Each is one function: check the gate, load, decide in the domain, commit once.
    pub mod change_order;
    mod context;
    pub mod create_order;
    mod idempotency_key;
    pub mod promote_pending;
    pub mod publish_events;
    pub mod request_id;

    pub use context::{CommandContext, CommitObserver, CommitProgress, Options, UnknownChange};
    pub use idempotency_key::IdempotencyGuard;
}

pub mod consume {
    //! Consumption of a message: decoding, the region rule, the chain of handlers of each event type. Also the reads of programs
    //! outside the service, which consume without a broker's client.
    pub mod chain;
    pub mod event_handler;
    pub mod forward;
    pub mod handlers;
    pub mod message_decision;
    pub mod order_topic;
    pub mod post_handler;
    pub mod spring_headers;
    pub mod topic_chain;
    pub mod topic_cursor;
    pub mod topic_reads;
    pub mod webhooks;
}

pub mod operators {
    //! Reads and changes of operators: outbox rows and dead letters.
    pub mod dead_letters;
    pub mod dead_letters_by_topic;
    pub mod outbox;
}

pub mod policy {
    //! Decisions as pure functions and small state machines, each with its table of tests.
    pub mod backpressure;
    pub mod breaker;
    pub mod conflict;
    pub mod failover;
    pub mod load_shedding;
    pub mod partition;
    pub mod regional_clock;
}

pub mod relay {
    //! The relay's decisions: which rows of a claimed batch are sent as which records, and what a failure does to a row.
    pub mod chain;
    #[cfg(test)]
    mod record_tests;
    mod records;
    pub mod value_contract;

    pub use records::{BatchPlan, Options, RecordEnvelope, RefusedRow, fallback_record, plan, record};
    pub use value_contract::TopicContracts;
}

/// Types of the ports for crates that may not depend on `ports` themselves.
pub mod port_types {
    pub use ::outbox::OffsetCommitMode;
    pub use outbox::event_rules::{self, check_type};
    pub use ports::FailureType;
    pub use ports::broker::consumer_groups::ConsumerRecord;
    pub use ports::broker::topic_log::ReadLimits;
    pub use ports::broker::{Position, RecordHeaders};
    pub use ports::endpoint::webhooks::{AttemptOutcome, Webhook, WebhookDelivery};
    pub use ports::event_headers::EventHeaders;
    pub use ports::operators::{
        Audit, AuditEntry, AuditFilter, AuditId, OperatorAction, PartitionBlock, RecordLocation, RedriveMode,
        RowDiagnosis, RowFilter, RowSelector, RowView,
    };
    pub use ports::orders::TraceContext;
    pub use ports::outbox::{ClaimedRow, EventKey, EventKeyError, RowCounts, RowId, RowStatus};
    pub use ports::partitions::{InstanceId, PartitionNo, PartitionView};
}
