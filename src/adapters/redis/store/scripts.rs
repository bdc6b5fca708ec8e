//! The store's scripts, each in a file of its own under `lua/store/`, behind what they share.
use deadpool_redis::redis::Script;

macro_rules! scripts {
    ($($name:ident),+ $(,)?) => {
        /// Every script of the store.
        pub(super) struct Scripts {
            $(pub(super) $name: Script,)+
        }

        impl Scripts {
            pub(super) fn new() -> Self {
                Self { $($name: script(include_str!(concat!("../lua/store/", stringify!($name), ".lua"))),)+ }
            }
        }
    };
}

fn script(text: &str) -> Script {
    Script::new(&format!("{}{text}", include_str!("../lua/store/prelude.lua")))
}

scripts!(
    commit, list, marks, claim, exclude, settle, resolve, depth, sweep, heartbeat, acquire, leases, rows, standing,
    act, inbox, detours, forget, letters, hold, let_go,
);
