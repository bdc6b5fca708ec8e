//! The migrations that this program contains. The statements of a released one never change; its comments may.

/// A migration as this program contains it.
pub(crate) struct MigrationFile {
    pub(crate) version: u32,
    pub(crate) name: &'static str,
    /// SHA-256 of the text as it was first released, in hexadecimal: the value that databases record, by programs of every version. It stays when a
    /// comment changes. `tests/tidy/coverage/migrations.rs` checks that the statements are still the released ones.
    pub(crate) checksum: &'static str,
    pub(crate) text: &'static str,
}

/// The migration whose file is named by its version and its name, with the checksum of its first released text.
macro_rules! migration {
    ($version:literal, $name:literal, $checksum:literal) => {
        MigrationFile {
            version: $version,
            name: $name,
            checksum: $checksum,
            text: include_str!(concat!("migrations/V", $version, "__", $name, ".sql")),
        }
    };
}

/// Every migration, oldest first.
pub(crate) const FILES: &[MigrationFile] = &[
    migration!(1, "orders_outbox_and_inbox", "e7963571ba94c5af5d1883ebcd7ab3c4fdad8a0b68afe11549830b44a262c2d4"),
    migration!(2, "redriven_dead_letters", "346dd2cf91f3c49eb3244ae0a902c943c26f19e2619d49f74ec6bcc9ccbc208b"),
    migration!(3, "open_batch_in_the_lease", "b9f22a2daf359638faf9784ed7b62b148bd7982d74b1e631f47a182004e5984f"),
    migration!(4, "store_timeline", "2e5f37a682f2b78005e62419f181ee254246ec21a2dd9198d164159cfb9fdd6c"),
    migration!(5, "debezium_types", "e34b71b305851dd9ca44e9e404de718cd116d5bf691fcaabe207f0f64008ceeb"),
    migration!(6, "last_attempts", "0684ab006f2f59f752cc900d203b9f25d6bdc00e14cc01e433163265582847f3"),
    migration!(7, "events_of_any_service", "60cfe53bf010129f38f9638a22c3e12e808c9e863ab39005e8856e4dc02277cd"),
    migration!(8, "publish_from_sql", "ef4d9fb18dd482d24ded5f6e4a132c164c21536bd196f6837468ed3641a3e569"),
    migration!(9, "webhooks", "4b9eeb8389c66dcc0571f8e1f48927084988758ad11611545d8151212a733ab8"),
    migration!(
        10,
        "detours_end_with_their_last_message",
        "fa478856b5e01b50642c11407eb8c30065d4b3ad0cbc76751e0221fbc74ded1d"
    ),
    migration!(
        11,
        "publish_with_fewer_expressions",
        "48c47123f62064696b8dbbdc584a8dd97598222f176b8e0dd6b360cce00746a7"
    ),
    migration!(12, "contract_checksum", "9b9961d069056385fdf31575953556d27d307a58a9c7094bee408c0836c4eff6"),
    migration!(13, "archive_index_of_wide_batches", "5c93a154a38924326f666bde405e11aff97693302b76cceaa288ee5ba69bbfd8"),
    migration!(
        14,
        "narrow_batches_by_their_first_id",
        "68fcc09f96f2fdc6521dfc33595d8149d47d57f5c5ef33a1e612c79daafddaff"
    ),
    migration!(
        15,
        "publish_refuses_in_plain_words",
        "f4b166613b6febe72f9494723f73970556bf620e7f087221444eeed78d26eb77"
    ),
    migration!(16, "publish_with_any_collation", "e0772f5386aefdb56fbe0a558add39d5209227aafbf177fbd7a07d7b8c6edfd9"),
    migration!(17, "long_keys_and_header_names", "9ff8dc51844e0f88b303747a745fdbb0a67aae55423083d13627aefba4a313f7"),
    migration!(18, "headers_of_forwarded_records", "5fc6edfede761e04dc927e1f35ba04c9fca6e419b4a1fdfa06b9df4236ac8dc5"),
    migration!(
        19,
        "publish_refuses_internal_topics",
        "d484b8fe2ceddd49a9133a42cdfca371eb788fb0e65aeb04c085eba2d71866ef"
    ),
    migration!(20, "table_names_in_plain_words", "b4798d028089b645dcb815a53f747a843312924341cafa51bf07ac136eab1866"),
    migration!(
        21,
        "adopted_rows_with_repeated_ids",
        "44f1af4cf2b59071f3f62d4a21bf209975ec963c7d1e6894246e6289efabf656"
    ),
];
