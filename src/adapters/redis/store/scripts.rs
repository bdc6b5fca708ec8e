//! The store's scripts, each in a file under `lua/store/`. Every script begins with the constants of the outbox's rules and the functions
//! of the prelude.
use deadpool_redis::redis::Script;

macro_rules! store_scripts {
    ($($name:ident = $file:literal),+ $(,)?) => {
        /// Every script of the store.
        pub(crate) struct StoreScripts {
            $(pub(crate) $name: Script,)+
        }

        impl StoreScripts {
            pub(crate) fn new() -> Self {
                let shared = format!("{}{}", outbox::scripts::rules_for_scripts(), include_str!("../lua/store/prelude.lua"));
                Self { $($name: Script::new(&format!("{shared}{}", include_str!(concat!("../lua/store/", $file)))),)+ }
            }
        }
    };
}

store_scripts!(
    commit = "orders/commit.lua",
    list = "orders/list.lua",
    oldest_ids = "orders/oldest_ids.lua",
    find_idempotency_record = "orders/find_idempotency_record.lua",
    sweep_idempotency_records = "orders/sweep_idempotency_records.lua",
    publish = "outbox/publish.lua",
    claim = "outbox/claim.lua",
    exclude = "outbox/exclude.lua",
    settle = "outbox/settle.lua",
    resolve = "outbox/resolve.lua",
    depth = "outbox/depth.lua",
    audit = "outbox/audit.lua",
    sweep_outbox = "outbox/sweep.lua",
    heartbeat = "leases/heartbeat.lua",
    survey = "leases/survey.lua",
    acquire = "leases/acquire.lua",
    renew = "leases/renew.lua",
    release = "leases/release.lua",
    overview = "leases/overview.lua",
    rows = "operators/rows.lua",
    diagnose = "operators/diagnose.lua",
    event = "operators/event.lua",
    change_rows = "operators/change_rows.lua",
    reserve_redrives = "operators/reserve_redrives.lua",
    confirm_redrives = "operators/confirm_redrives.lua",
    release_redrives = "operators/release_redrives.lua",
    find_redrives = "operators/find_redrives.lua",
    save_webhook = "webhooks/save.lua",
    delete_webhook = "webhooks/delete.lua",
    record_deliveries = "webhooks/record_deliveries.lua",
    webhooks = "webhooks/list.lua",
    deliveries = "webhooks/deliveries.lua",
    commit_inbox = "inbox/commit.lua",
    update_retry_routes = "inbox/update_retry_routes.lua",
    sweep_inbox = "inbox/sweep.lua",
    acquire_instance_id = "instance_id/acquire.lua",
    renew_instance_id = "instance_id/renew.lua",
    release_instance_id = "instance_id/release.lua",
);
