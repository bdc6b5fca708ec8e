"""Reads order.events over HTTP: at least once, in order per key. Usage: consumer.py URL TOKEN GROUP"""
import http.client, json, sys, time, urllib.error, urllib.request

url, token, group = sys.argv[1:4]
topic = "order.events"

def call(path, body=None):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=60)

def handle(record):  # After a failure it sees a record again: make it idempotent, for example by the header ce_id.
    print(record["key"], record["headers"]["ce_type"], record["headers"]["x-sequence"], flush=True)

while True:
    try:
        for line in map(json.loads, call(f"/topics/{topic}/records?group={group}&wait=20s")):
            if "offset" in line:
                handle(line)
            else:  # Every record before this line is handled.
                call(f"/groups/{group}/topics/{topic}/offsets", {"cursor": line["cursor"]}).close()
    except (OSError, ValueError, http.client.HTTPException) as failure:
        if isinstance(failure, urllib.error.HTTPError) and failure.code in (400, 401, 403, 404, 409, 410, 501):
            sys.exit(f"{failure}: {failure.read().decode()}")
        time.sleep(1)  # The service restarts or is overloaded: continue at the committed offsets.
