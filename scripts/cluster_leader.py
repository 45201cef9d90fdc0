"""Reads nats-server's /jsz and prints the member that leads the cluster, a stream [STREAM], or a consumer [STREAM CONSUMER]."""
import json
import sys

answer = sys.stdin.read()
jsz = json.loads(answer[answer.index("{") : answer.rindex("}") + 1])
found = jsz.get("meta_cluster", {})
if len(sys.argv) > 1:
    streams = [s for account in jsz.get("account_details", []) for s in account.get("stream_detail", [])]
    found = next((s for s in streams if s["name"] == sys.argv[1]), {})
    if len(sys.argv) > 2:
        found = next((c for c in found.get("consumer_detail", []) if c["name"] == sys.argv[2]), {})
    found = found.get("cluster", {})
leader = found.get("leader")
if not leader:
    sys.exit(1)
print(leader)
