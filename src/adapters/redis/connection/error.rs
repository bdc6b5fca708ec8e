//! Maps errors of Redis to the port's errors in one place: the effect that a failed call may have had decides the variant.
use deadpool_redis::redis::{ErrorKind, RedisError};
use deadpool_redis::{HookError, PoolError};
use ports::Error;

/// The error of a call that may have reached the server.
pub(crate) fn call_error(operation: &str, error: &RedisError) -> Error {
    let text = format!("{operation}: {error}");
    match error.kind() {
        ErrorKind::Io if error.is_connection_refusal() => Error::Unreachable(text),
        // Time-outs and closed connections: the request was sent, and its reply did not arrive.
        ErrorKind::Io => Error::Unknown(text),
        _ => server_error(code(error).as_deref(), text),
    }
}

/// The error of obtaining a connection: nothing was sent.
pub(crate) fn pool_error(error: &PoolError) -> Error {
    let text = format!("connect: {error}");
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => match error.kind() {
            ErrorKind::Io => Error::Unreachable(text),
            _ => server_error(code(error).as_deref(), text),
        },
        _ => Error::Unreachable(text),
    }
}

/// The error of a server's error reply, by its code. None of them leaves a partial change, because the scripts check before they write.
fn server_error(code: Option<&str>, text: String) -> Error {
    match code {
        // The server starts, waits for its master, is being demoted, or must not write without its replicas: temporary.
        Some("LOADING" | "MASTERDOWN" | "READONLY" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "UNBLOCKED") => {
            Error::Unreachable(text)
        }
        // Temporary only while a cluster moves slots to this node.
        Some("MOVED" | "ASK") => Error::Unreachable(format!(
            "{text}: this Redis is a node of a cluster and has only some of the keys; use a Redis without cluster mode"
        )),
        // Another client's script runs for seconds, or there are too many clients.
        Some("BUSY") => Error::Overloaded(text),
        Some("ERR") if text.contains("max number of clients") => Error::Overloaded(text),
        // maxmemory is reached without eviction, or failing snapshots stop writes: an operator must free space.
        Some("OOM" | "MISCONF") => Error::Full(text),
        // WRONGTYPE, NOSCRIPT after loading, NOAUTH, NOPERM, errors inside a script, replies of an unexpected type.
        _ => Error::Broken(text),
    }
}

/// The code of the first error in a reply, also in a pipeline's.
fn code(error: &RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    errors.first().map(|(_, error)| raised_code(error.code(), error.details().unwrap_or_default()).to_owned())
}

/// The code of the error that ended a script. Redis 6 reports it as an `ERR` with the position in the script before it.
fn raised_code<'a>(code: &'a str, details: &'a str) -> &'a str {
    if code != "ERR" || !details.starts_with("Error running script") {
        return code;
    }
    details.rsplit_once(": -").and_then(|(_, raised)| raised.split_whitespace().next()).unwrap_or(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_error_code_decides_the_ports_error() {
        let error = |code: &str, text: &str| server_error(Some(code), format!("{code} {text}"));

        for code in ["LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "MOVED", "ASK"] {
            assert!(matches!(error(code, ""), Error::Unreachable(_)), "{code}");
        }
        assert!(error("MOVED", "9427 127.0.0.1:6380").to_string().contains("use a Redis without cluster mode"));
        assert!(matches!(error("OOM", "command not allowed"), Error::Full(_)));
        assert!(matches!(error("MISCONF", "errors writing to the disk"), Error::Full(_)));
        assert!(matches!(error("BUSY", "running a script"), Error::Overloaded(_)));
        assert!(matches!(error("ERR", "max number of clients reached"), Error::Overloaded(_)));
        for code in ["ERR", "WRONGTYPE", "NOSCRIPT", "NOAUTH", "NOPERM"] {
            assert!(matches!(error(code, ""), Error::Broken(_)), "{code}");
        }
    }

    #[test]
    fn error_inside_a_script_of_redis_6_has_the_code_of_its_cause() {
        let error = |raised: &str| {
            let details = format!("Error running script (call to f_0b3f): @user_script:50: @user_script: 50: {raised}");
            server_error(Some(raised_code("ERR", &details)), details.clone())
        };

        assert!(matches!(error("-READONLY You can't write against a read only replica."), Error::Unreachable(_)));
        assert!(matches!(error("-NOREPLICAS Not enough good replicas to write."), Error::Unreachable(_)));
        assert!(matches!(error("-OOM command not allowed when used memory > 'maxmemory'."), Error::Full(_)));
        let snapshots =
            "-MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.";
        assert!(matches!(error(snapshots), Error::Full(_)));
        assert!(matches!(error("attempt to index a nil value"), Error::Broken(_)));
        assert_eq!(raised_code("ERR", "no such command: -OOM"), "ERR");
        assert_eq!(
            raised_code("READONLY", "You can't write against a read only replica. script: 0b3f, on @user_script:50."),
            "READONLY"
        );
    }

    #[test]
    fn a_missing_reply_is_unknown_and_a_refused_connection_is_unreachable() {
        let io = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));

        assert!(matches!(call_error("put", &io(std::io::ErrorKind::TimedOut)), Error::Unknown(_)));
        assert!(matches!(call_error("put", &io(std::io::ErrorKind::BrokenPipe)), Error::Unknown(_)));
        assert!(matches!(call_error("put", &io(std::io::ErrorKind::ConnectionRefused)), Error::Unreachable(_)));
        let connecting = PoolError::Backend(io(std::io::ErrorKind::TimedOut));
        assert!(matches!(pool_error(&connecting), Error::Unreachable(_)));
        assert!(matches!(pool_error(&PoolError::Closed), Error::Unreachable(_)));
    }
}
