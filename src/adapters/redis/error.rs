//! Redis's errors as the port's, in one table: what each leaves behind decides its name.
use deadpool_redis::redis::{ErrorKind, RedisError};
use deadpool_redis::{HookError, PoolError, TimeoutType};
use ports::Error;

/// An error of a call that may have reached the server.
pub(crate) fn of_call(doing: &str, error: &RedisError) -> Error {
    let said = format!("{doing}: {error}");
    match error.kind() {
        ErrorKind::Io if error.is_connection_refusal() => Error::Unreachable(said),
        // Time-outs and cut connections: it was sent, and its answer never came.
        ErrorKind::Io => Error::Unknown(said),
        _ => of_server(code(error).as_deref(), said),
    }
}

/// An error on the way to a connection: nothing was sent.
pub(crate) fn of_pool(error: &PoolError) -> Error {
    let said = format!("connect: {error}");
    match error {
        PoolError::Timeout(TimeoutType::Wait) => Error::Overloaded(said),
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => match error.kind() {
            ErrorKind::Io => Error::Unreachable(said),
            _ => of_server(code(error).as_deref(), said),
        },
        _ => Error::Unreachable(said),
    }
}

/// What the server said, by its code. All of these leave nothing behind: our scripts check before they write.
fn of_server(code: Option<&str>, said: String) -> Error {
    match code {
        // It starts, waits for its master, is being demoted or moved, or may not write without its replicas: on its way.
        Some(
            "LOADING" | "MASTERDOWN" | "READONLY" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "NOREPLICAS"
            | "UNBLOCKED",
        ) => Error::Unreachable(said),
        // Someone's script runs for seconds, or there are too many clients.
        Some("BUSY") => Error::Overloaded(said),
        Some("ERR") if said.contains("max number of clients") => Error::Overloaded(said),
        // maxmemory is reached without eviction, or snapshots fail and stop writes: a human makes room.
        Some("OOM" | "MISCONF") => Error::Full(said),
        // WRONGTYPE, NOSCRIPT after loading, NOAUTH, NOPERM, errors inside a script, answers we cannot read.
        _ => Error::Broken(said),
    }
}

/// The code of the first error in an answer, of a pipeline too.
fn code(error: &RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    errors.first().map(|(_, error)| error.code().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_decides_what_the_caller_hears() {
        let told = |code: &str, text: &str| of_server(Some(code), format!("{code} {text}"));

        for code in ["LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN"] {
            assert!(matches!(told(code, ""), Error::Unreachable(_)), "{code}");
        }
        assert!(matches!(told("OOM", "command not allowed"), Error::Full(_)));
        assert!(matches!(told("MISCONF", "errors writing to the disk"), Error::Full(_)));
        assert!(matches!(told("BUSY", "running a script"), Error::Overloaded(_)));
        assert!(matches!(told("ERR", "max number of clients reached"), Error::Overloaded(_)));
        for code in ["ERR", "WRONGTYPE", "NOSCRIPT", "NOAUTH", "NOPERM"] {
            assert!(matches!(told(code, ""), Error::Broken(_)), "{code}");
        }
    }

    #[test]
    fn an_answer_that_never_came_is_unknown_and_a_closed_door_is_not() {
        let io = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));

        assert!(matches!(of_call("put", &io(std::io::ErrorKind::TimedOut)), Error::Unknown(_)));
        assert!(matches!(of_call("put", &io(std::io::ErrorKind::BrokenPipe)), Error::Unknown(_)));
        assert!(matches!(of_call("put", &io(std::io::ErrorKind::ConnectionRefused)), Error::Unreachable(_)));
        let connecting = PoolError::Backend(io(std::io::ErrorKind::TimedOut));
        assert!(matches!(of_pool(&connecting), Error::Unreachable(_)));
        assert!(matches!(of_pool(&PoolError::Timeout(TimeoutType::Wait)), Error::Overloaded(_)));
    }
}
