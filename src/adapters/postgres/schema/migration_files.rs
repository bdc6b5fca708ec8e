//! The migrations that this program contains. A released one never changes: its checksum is in the databases that have it.

/// A migration as this program contains it.
pub(crate) struct MigrationFile {
    pub(crate) version: u32,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// The migration whose file is named by its version and its name.
macro_rules! migration {
    ($version:literal, $name:literal) => {
        MigrationFile {
            version: $version,
            name: $name,
            text: include_str!(concat!("migrations/V", $version, "__", $name, ".sql")),
        }
    };
}

/// Every migration, oldest first.
pub(crate) const FILES: &[MigrationFile] = &[
    migration!(1, "orders_outbox_and_inbox"),
    migration!(2, "redriven_dead_letters"),
    migration!(3, "open_batch_in_the_lease"),
    migration!(4, "store_timeline"),
    migration!(5, "debezium_types"),
    migration!(6, "last_attempts"),
    migration!(7, "events_of_any_service"),
    migration!(8, "publish_from_sql"),
    migration!(9, "webhooks"),
    migration!(10, "detours_end_with_their_last_message"),
    migration!(11, "publish_with_fewer_expressions"),
    migration!(12, "contract_checksum"),
    migration!(13, "archive_index_of_wide_batches"),
    migration!(14, "narrow_batches_by_their_first_id"),
    migration!(15, "publish_refuses_in_plain_words"),
    migration!(16, "publish_with_any_collation"),
    migration!(17, "long_keys_and_header_names"),
    migration!(18, "headers_of_forwarded_records"),
    migration!(19, "publish_refuses_internal_topics"),
];
