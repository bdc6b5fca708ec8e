//! Short type names, the `kind` of an actor and of a message in events, logs and metrics.

/// The name of a type without its modules and generic parameters, such as `PartitionWorker`.
pub(crate) fn short_name<T>() -> &'static str {
    let full = std::any::type_name::<T>();
    let plain = full.split('<').next().unwrap_or(full);
    plain.rsplit("::").next().unwrap_or(plain)
}
