//! The store on PostgreSQL: orders, outbox, leases, inbox and idempotency keys in one database that several instances share.
//!
//! Commits queue up and share transactions, and so do claims and settlements, which are fenced by the lease rows of their partitions. All times
//! are the database's. An error of a statement says whether the statement may have changed something although its reply was lost.
#![warn(missing_docs)]

mod store {
    pub(crate) mod context;
    pub(crate) mod dead_rows;
    pub(crate) mod oldest_transaction;
    pub(crate) mod open;
    pub(crate) mod options;
    pub(crate) mod postgres;
    pub(crate) mod probe;
    pub(crate) mod server_report;
}

mod orders {
    pub(crate) mod columns;
    pub(crate) mod commit_queue;
    pub(crate) mod committer;
    pub(crate) mod group_commit;
    pub(crate) mod group_spacing;
    pub(crate) mod order_row;
    pub(crate) mod order_store;
    pub(crate) mod resolve_commit;
}

mod publish {
    pub(crate) mod adopt;
    pub(crate) mod adopt_error;
    mod event_store;
    pub(crate) mod internal_topics;
    pub(crate) mod new_event;
    mod output_settings;
    pub(crate) mod partition_moves;
    mod table_change;
    mod target_table;
    pub(crate) mod transaction;
    mod trigger_function;
}

mod outbox {
    pub(crate) mod claim;
    pub(crate) mod claim_text;
    pub(crate) mod claimed_row;
    pub(crate) mod depth;
    pub(crate) mod exclude;
    pub(crate) mod open_batch;
    pub(crate) mod outbox_store;
    pub(crate) mod resolve;
    pub(crate) mod rounds {
        pub(crate) mod claim_group;
        pub(crate) mod lease_locks;
        pub(crate) mod relay_queue;
        pub(crate) mod relay_request;
        pub(crate) mod relay_rounds;
        pub(crate) mod settle_group;
    }
    pub(crate) mod row_changes;
    pub(crate) mod scan {
        pub(crate) mod id_samples;
        pub(crate) mod scan_snapshot;
        pub(crate) mod scan_start;
    }
    pub(crate) mod settle;
    pub(crate) mod settle_and_claim;
    pub(crate) mod sweep;
}

mod operators {
    pub(crate) mod audit_log;
    pub(crate) mod diagnosis;
    pub(crate) mod outbox_operators;
    pub(crate) mod redrive_ledger;
    pub(crate) mod row_actions;
    pub(crate) mod row_query;
    pub(crate) mod webhooks;
}

mod leases {
    pub(crate) mod acquire;
    pub(crate) mod instance_id_claimant;
    pub(crate) mod instance_id_lease;
    pub(crate) mod instance_id_lock;
    pub(crate) mod instance_id_row;
    pub(crate) mod lease_row;
    pub(crate) mod partition_leases;
    pub(crate) mod renew;
    pub(crate) mod timeline;
    pub(crate) mod unanswered_acceptance;
}

mod inbox {
    mod processed_events;
}

mod idempotency {
    pub(crate) mod deferred_releases;
    mod idempotency_port;
    pub(crate) mod keys;
    pub(crate) mod release;
}

mod wake {
    mod wake_channel;
    pub(crate) mod wake_listener;
    pub(crate) mod wake_tasks;
}

mod schema {
    pub(crate) mod archive_days;
    pub(crate) mod commands;
    pub(crate) mod earlier_adoptions;
    pub(crate) mod migration_files;
    pub(crate) mod migrations;
    pub(crate) mod own_schema;
    pub(crate) mod table_wait;
    pub mod throwaway;
}

mod connection {
    pub(crate) mod address;
    pub(crate) mod background_tasks;
    pub(crate) mod connector;
    pub(crate) mod open_error;
    pub(crate) mod retry_backoff;
    pub(crate) mod server_timeline;
    pub(crate) mod session;
    pub(crate) mod sql_value;
    pub(crate) mod statement_error;
    pub(crate) mod tls;
    pub(crate) mod where_clause;
}

pub use connection::open_error::PostgresOpenError;
pub use publish::adopt::{AdoptedTable, adopt, adoption_statements, release_adopted};
pub use publish::adopt_error::AdoptError;
pub use publish::new_event::{EventRefusal, NewEvent};
pub use publish::partition_moves::rows_can_change_partition;
pub use publish::transaction::{EventPublisher, PublishError, publish, publish_all};
pub use schema::commands::{migrate, migration_status};
pub use schema::earlier_adoptions::{EarlierAdoption, tables_without_id_check, tables_without_type_check};
pub use schema::migrations::MigrationStatus;
pub use schema::throwaway;
pub use store::dead_rows::DeadRows;
pub use store::options::Options;
pub use store::postgres::Postgres;
pub use store::probe::PostgresProbe;
pub use store::server_report::{IdleSlot, ServerReport, StandbyReport, WeakSetting};
