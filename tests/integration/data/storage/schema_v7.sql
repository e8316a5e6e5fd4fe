PRAGMA application_id = 1380796756;
PRAGMA user_version = 7;
BEGIN TRANSACTION;
CREATE TABLE api_keys (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at TEXT NOT NULL,
        revoked_at TEXT,
        record TEXT NOT NULL
    ) WITHOUT ROWID
    ;
CREATE TABLE artifacts (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        name TEXT NOT NULL,
        media_type TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (run, name)
    );
INSERT INTO "artifacts" VALUES(1,1,'plan','text/plain; charset=utf-8','1. Look. 2. Fix.');
INSERT INTO "artifacts" VALUES(2,1,'patch','text/x-diff','--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
--- a/x
+++ b/x
');
CREATE TABLE attempts (
        run INTEGER NOT NULL REFERENCES runs (key),
        attempt_id TEXT NOT NULL,
        started_seq INTEGER NOT NULL,
        ended_seq INTEGER CHECK (ended_seq > started_seq),
        PRIMARY KEY (run, attempt_id)
    ) WITHOUT ROWID
    ;
INSERT INTO "attempts" VALUES(1,'plan-1',4,5);
INSERT INTO "attempts" VALUES(1,'review-1-1',20,21);
INSERT INTO "attempts" VALUES(1,'work-1-1',12,13);
INSERT INTO "attempts" VALUES(1,'work-1-2',16,17);
CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL,
        at TEXT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        origin TEXT,
        outcome TEXT NOT NULL,
        data TEXT NOT NULL
    );
CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        seq INTEGER NOT NULL CHECK (seq > 0),
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        at TEXT NOT NULL,
        work_id TEXT,
        parent_work_id TEXT,
        data TEXT NOT NULL
    );
INSERT INTO "events" VALUES(1,1,1,'run.queued',1,'2026-12-01T00:26:47.599264Z','run_ended',NULL,'{"run":{"id":"run_ended","session_id":"run_ended","parent_run_id":null,"root_run_id":"run_ended","continues":null,"binding":"reviewed","profile":"reviewed","status":"queued","cancel_requested":false,"created_at":"2026-11-30T12:00:00.000000Z","started_at":null,"deadline_at":null,"ended_at":null,"workspace":{"ref":"app","node_id":null,"base":null,"isolation":null,"sandbox":null},"limits":{"wall_clock_ms":3600000,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":200,"max_tool_calls_per_round":16,"max_corrections":2,"max_revisions":1,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":8,"tool_timeout_ms":120000,"max_tool_output_bytes":16384,"working_limit_ms":null},"metadata":{},"terminal":null,"output":null,"review":null,"checks":[],"patch":null,"delivery":null,"usage":null,"cost_usd":null,"estimated_max_cost_usd":null,"cancel":null,"abandoned":[],"queue_position":null},"request":{"id":null,"binding":null,"session_id":null,"continues":null,"prompt":"Make the failing test pass.","content":null,"instructions":null,"earlier":[],"workspace":null,"profile":null,"model":null,"stages":{},"limits":{"wall_clock_ms":null,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":null,"max_tool_calls_per_round":null,"max_corrections":null,"max_revisions":null,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":null,"tool_timeout_ms":null,"max_tool_output_bytes":null,"working_limit_ms":null},"delivery":null,"preserve":null,"usage":null,"acknowledge":null,"on_busy":null,"webhook":null,"metadata":{},"in_place":false,"unreviewed":false,"allow_protected":false},"fingerprint":"fingerprint of Make the failing test pass.","text_replaced":0,"key_id":null}');
INSERT INTO "events" VALUES(2,2,1,'run.queued',1,'2026-12-01T00:26:47.602848Z','run_queued',NULL,'{"run":{"id":"run_queued","session_id":"run_queued","parent_run_id":null,"root_run_id":"run_queued","continues":null,"binding":"reviewed","profile":"reviewed","status":"queued","cancel_requested":false,"created_at":"2026-11-30T12:00:00.000000Z","started_at":null,"deadline_at":null,"ended_at":null,"workspace":{"ref":"app","node_id":null,"base":null,"isolation":null,"sandbox":null},"limits":{"wall_clock_ms":3600000,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":200,"max_tool_calls_per_round":16,"max_corrections":2,"max_revisions":1,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":8,"tool_timeout_ms":120000,"max_tool_output_bytes":16384,"working_limit_ms":null},"metadata":{},"terminal":null,"output":null,"review":null,"checks":[],"patch":null,"delivery":null,"usage":null,"cost_usd":null,"estimated_max_cost_usd":null,"cancel":null,"abandoned":[],"queue_position":null},"request":{"id":null,"binding":null,"session_id":null,"continues":null,"prompt":"Make the failing test pass.","content":null,"instructions":null,"earlier":[],"workspace":null,"profile":null,"model":null,"stages":{},"limits":{"wall_clock_ms":null,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":null,"max_tool_calls_per_round":null,"max_corrections":null,"max_revisions":null,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":null,"tool_timeout_ms":null,"max_tool_output_bytes":null,"working_limit_ms":null},"delivery":null,"preserve":null,"usage":null,"acknowledge":null,"on_busy":null,"webhook":null,"metadata":{},"in_place":false,"unreviewed":false,"allow_protected":false},"fingerprint":"fingerprint of Make the failing test pass.","text_replaced":0,"key_id":null}');
INSERT INTO "events" VALUES(3,1,2,'run.started',1,'2026-12-01T00:26:47.627351Z',NULL,NULL,'{"started_at":"2026-11-30T12:00:00.000000Z","deadline_at":"2026-11-30T13:00:00.000000Z","limits":{"wall_clock_ms":3600000,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":200,"max_tool_calls_per_round":16,"max_corrections":2,"max_revisions":1,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":8,"tool_timeout_ms":120000,"max_tool_output_bytes":16384,"working_limit_ms":null},"prepared":{"workspace":{"ref":"app","node_id":"local","base":"git:9f3c","isolation":"overlay","sandbox":"bubblewrap"},"brief_sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","notes":[],"checks":[]}}');
INSERT INTO "events" VALUES(4,1,3,'stage.started',1,'2026-12-01T00:26:47.634762Z','plan',NULL,'{"stage_id":"plan","status":"planning","prompts_version":null}');
INSERT INTO "events" VALUES(5,1,4,'attempt.started',1,'2026-12-01T00:26:47.634762Z','plan-1',NULL,'{"attempt_id":"plan-1","stage_id":"plan","round":1,"ordinal":1,"model":"scripted:demo","status":"started","usage":null,"reserved_tokens":2000,"reserved_micros":null}');
INSERT INTO "events" VALUES(6,1,5,'attempt.completed',1,'2026-12-01T00:26:47.642820Z','plan-1',NULL,'{"attempt_id":"plan-1","stage_id":"plan","round":1,"ordinal":1,"model":"scripted:demo","status":"completed","usage":{"input_tokens":1200,"output_tokens":80,"cache_read_tokens":900,"cache_write_tokens":0,"reasoning_tokens":0,"total_tokens":1280,"coverage":"reported","raw":{"prompt_tokens":1200,"completion_tokens":80,"prompt_tokens_details":{"cached_tokens":900}},"flags":[]},"cost_micros":0,"price_version":"free","code":null,"detail":null,"finish":null,"provider_request_id":null,"duration_ms":12,"waited_ms":0}');
INSERT INTO "events" VALUES(7,1,6,'stage.completed',1,'2026-12-01T00:26:47.644544Z','plan',NULL,'{"stage_id":"plan","answer":{"plan":"1. Look. 2. Fix.","verification":"pytest"}}');
INSERT INTO "events" VALUES(8,1,7,'plan.ready',1,'2026-12-01T00:26:47.650703Z',NULL,NULL,'{"stage_id":"plan","sha256":"abababababababababababababababababababababababababababababababab"}');
INSERT INTO "events" VALUES(9,1,8,'work.registered',1,'2026-12-01T00:26:47.653404Z','open',NULL,'{"kind":"node_call","label":"open"}');
INSERT INTO "events" VALUES(10,1,9,'checkout.opened',1,'2026-12-01T00:26:47.661374Z',NULL,NULL,'{"checkout_id":"co_1","root":"/srv/app","isolation":"overlay","sandbox":"bubblewrap"}');
INSERT INTO "events" VALUES(11,1,10,'work.finished',1,'2026-12-01T00:26:47.661374Z','open',NULL,'{"kind":"node_call","label":"open","how":"closed"}');
INSERT INTO "events" VALUES(12,1,11,'stage.started',1,'2026-12-01T00:26:47.664861Z','work-1',NULL,'{"stage_id":"work-1","status":"working","prompts_version":null}');
INSERT INTO "events" VALUES(13,1,12,'attempt.started',1,'2026-12-01T00:26:47.664861Z','work-1-1',NULL,'{"attempt_id":"work-1-1","stage_id":"work-1","round":1,"ordinal":1,"model":"scripted:demo","status":"started","usage":null,"reserved_tokens":2000,"reserved_micros":null}');
INSERT INTO "events" VALUES(14,1,13,'attempt.completed',1,'2026-12-01T00:26:47.665814Z','work-1-1',NULL,'{"attempt_id":"work-1-1","stage_id":"work-1","round":1,"ordinal":1,"model":"scripted:demo","status":"completed","usage":{"input_tokens":1200,"output_tokens":80,"cache_read_tokens":900,"cache_write_tokens":0,"reasoning_tokens":0,"total_tokens":1280,"coverage":"reported","raw":{"prompt_tokens":1200,"completion_tokens":80,"prompt_tokens_details":{"cached_tokens":900}},"flags":[]},"cost_micros":0,"price_version":"free","code":null,"detail":null,"finish":null,"provider_request_id":null,"duration_ms":12,"waited_ms":0}');
INSERT INTO "events" VALUES(15,1,14,'tool.started',1,'2026-12-01T00:26:47.670694Z','call_1',NULL,'{"tool_call_id":"call_1","stage_id":"work-1","name":"run_shell","status":"started","exit_code":null,"duration_ms":null,"receipt_id":null,"label":"pytest -q"}');
INSERT INTO "events" VALUES(16,1,15,'tool.completed',1,'2026-12-01T00:26:47.672944Z','call_1',NULL,'{"tool_call_id":"call_1","stage_id":"work-1","name":"run_shell","status":"success","exit_code":0,"duration_ms":420,"receipt_id":"rc_1"}');
INSERT INTO "events" VALUES(17,1,16,'attempt.started',1,'2026-12-01T00:26:47.673970Z','work-1-2',NULL,'{"attempt_id":"work-1-2","stage_id":"work-1","round":2,"ordinal":1,"model":"scripted:demo","status":"started","usage":null,"reserved_tokens":2000,"reserved_micros":null}');
INSERT INTO "events" VALUES(18,1,17,'attempt.completed',1,'2026-12-01T00:26:47.675057Z','work-1-2',NULL,'{"attempt_id":"work-1-2","stage_id":"work-1","round":2,"ordinal":1,"model":"scripted:demo","status":"completed","usage":{"input_tokens":1200,"output_tokens":80,"cache_read_tokens":900,"cache_write_tokens":0,"reasoning_tokens":0,"total_tokens":1280,"coverage":"reported","raw":{"prompt_tokens":1200,"completion_tokens":80,"prompt_tokens_details":{"cached_tokens":900}},"flags":[]},"cost_micros":0,"price_version":"free","code":null,"detail":null,"finish":null,"provider_request_id":null,"duration_ms":12,"waited_ms":0}');
INSERT INTO "events" VALUES(19,1,18,'stage.completed',1,'2026-12-01T00:26:47.675653Z','work-1',NULL,'{"stage_id":"work-1","answer":{"completion":"Fixed it.","verification":"12 passed"}}');
INSERT INTO "events" VALUES(20,1,19,'stage.started',1,'2026-12-01T00:26:47.676116Z','review-1',NULL,'{"stage_id":"review-1","status":"reviewing","prompts_version":null}');
INSERT INTO "events" VALUES(21,1,20,'attempt.started',1,'2026-12-01T00:26:47.676116Z','review-1-1',NULL,'{"attempt_id":"review-1-1","stage_id":"review-1","round":1,"ordinal":1,"model":"scripted:demo","status":"started","usage":null,"reserved_tokens":2000,"reserved_micros":null}');
INSERT INTO "events" VALUES(22,1,21,'attempt.completed',1,'2026-12-01T00:26:47.683018Z','review-1-1',NULL,'{"attempt_id":"review-1-1","stage_id":"review-1","round":1,"ordinal":1,"model":"scripted:demo","status":"completed","usage":{"input_tokens":1200,"output_tokens":80,"cache_read_tokens":900,"cache_write_tokens":0,"reasoning_tokens":0,"total_tokens":1280,"coverage":"reported","raw":{"prompt_tokens":1200,"completion_tokens":80,"prompt_tokens_details":{"cached_tokens":900}},"flags":[]},"cost_micros":0,"price_version":"free","code":null,"detail":null,"finish":null,"provider_request_id":null,"duration_ms":12,"waited_ms":0}');
INSERT INTO "events" VALUES(23,1,22,'stage.completed',1,'2026-12-01T00:26:47.683623Z','review-1',NULL,'{"stage_id":"review-1","answer":{"decision":"pass","output":"Fixed.","summary":""}}');
INSERT INTO "events" VALUES(24,1,23,'review.decided',1,'2026-12-01T00:26:47.690561Z',NULL,NULL,'{"stage_id":"review-1","review":{"decision":"pass","summary":"","repairs":[],"flags":[],"content_hash":"efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef"},"output":"Fixed.","patch":{"sha256":"5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","files":2,"insertions":14,"deletions":3,"reviewed":true}}');
INSERT INTO "events" VALUES(25,1,24,'run.finalizing',1,'2026-12-01T00:26:47.691143Z',NULL,NULL,'{"content_hash":"efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef","leftovers":[],"delivery":null,"patch":null}');
INSERT INTO "events" VALUES(26,1,25,'work.registered',1,'2026-12-01T00:26:47.691143Z','check',NULL,'{"kind":"node_call","label":"check"}');
INSERT INTO "events" VALUES(27,1,26,'check.completed',1,'2026-12-01T00:26:47.695828Z',NULL,NULL,'{"check":{"id":"test","base_exit":1,"exit":0,"ms":400,"gate":"pass","flaky":false}}');
INSERT INTO "events" VALUES(28,1,27,'work.finished',1,'2026-12-01T00:26:47.695828Z','check',NULL,'{"kind":"node_call","label":"check","how":"closed"}');
INSERT INTO "events" VALUES(29,1,28,'delivery.intent',1,'2026-12-01T00:26:47.697036Z',NULL,NULL,'{"mode":"patch","patch":{"sha256":"5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","files":2,"insertions":14,"deletions":3,"reviewed":true}}');
INSERT INTO "events" VALUES(30,1,29,'work.registered',1,'2026-12-01T00:26:47.697036Z','deliver',NULL,'{"kind":"node_call","label":"deliver"}');
INSERT INTO "events" VALUES(31,1,30,'delivery.completed',1,'2026-12-01T00:26:47.701318Z',NULL,NULL,'{"delivery":{"mode":"patch","status":"delivered","ref":null},"paths":["x"]}');
INSERT INTO "events" VALUES(32,1,31,'work.finished',1,'2026-12-01T00:26:47.701318Z','deliver',NULL,'{"kind":"node_call","label":"deliver","how":"closed"}');
INSERT INTO "events" VALUES(33,1,32,'run.settling',1,'2026-12-01T00:26:47.702758Z',NULL,NULL,'{"kind":"completed","class":null,"code":null,"stage":null,"limit":null,"output":"done","detail":null}');
INSERT INTO "events" VALUES(34,1,33,'work.registered',1,'2026-12-01T00:26:47.702758Z','cleanup',NULL,'{"kind":"node_call","label":"cleanup"}');
INSERT INTO "events" VALUES(35,1,34,'work.finished',1,'2026-12-01T00:26:47.703719Z','cleanup',NULL,'{"kind":"node_call","label":"cleanup","how":"closed"}');
INSERT INTO "events" VALUES(36,1,35,'usage.updated',1,'2026-12-01T00:26:47.710760Z',NULL,NULL,'{"usage":{"input_tokens":4800,"output_tokens":320,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":5120,"complete":true,"causes":[],"coverage":{"attempts":0,"reported":0,"refused":0,"interrupted":0,"partial":0,"missing":0,"priced":0,"unpriced":0},"own":{"input_tokens":null,"output_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":null},"subtree":{"input_tokens":null,"output_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":null},"by_stage":{},"by_model":{}},"cost_usd":0.0,"estimated_max_cost_usd":0.0}');
INSERT INTO "events" VALUES(37,1,36,'run.completed',1,'2026-12-01T00:26:47.710760Z',NULL,NULL,'{"id":"run_ended","session_id":"run_ended","parent_run_id":null,"root_run_id":"run_ended","continues":null,"binding":"reviewed","profile":"reviewed","status":"completed","cancel_requested":false,"created_at":"2026-11-30T12:00:00.000000Z","started_at":null,"deadline_at":null,"ended_at":"2026-11-30T12:00:00.000000Z","workspace":{"ref":"app","node_id":null,"base":null,"isolation":null,"sandbox":null},"limits":{"wall_clock_ms":3600000,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":200,"max_tool_calls_per_round":16,"max_corrections":2,"max_revisions":1,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":8,"tool_timeout_ms":120000,"max_tool_output_bytes":16384,"working_limit_ms":null},"metadata":{},"terminal":{"kind":"completed","class":null,"code":null,"message":null,"stage":null,"limit":null},"output":"Fixed.","review":{"decision":"pass","summary":"","repairs":[],"flags":[],"content_hash":"efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef"},"checks":[{"id":"test","base_exit":1,"exit":0,"ms":400,"gate":"pass","flaky":false}],"patch":{"sha256":"5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","files":2,"insertions":14,"deletions":3,"reviewed":true},"delivery":{"mode":"patch","status":"delivered","ref":null},"usage":{"input_tokens":4800,"output_tokens":320,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":5120,"complete":true,"causes":[],"coverage":{"attempts":0,"reported":0,"refused":0,"interrupted":0,"partial":0,"missing":0,"priced":0,"unpriced":0},"own":{"input_tokens":null,"output_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":null},"subtree":{"input_tokens":null,"output_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":null},"by_stage":{},"by_model":{}},"cost_usd":0.0,"estimated_max_cost_usd":0.0,"cancel":null,"abandoned":[],"queue_position":null}');
CREATE TABLE history (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        at TEXT NOT NULL,
        type TEXT NOT NULL,
        data TEXT NOT NULL
    );
INSERT INTO "history" VALUES(1,1,'2026-12-01T00:26:47.711712Z','webhook','{"status":200}');
CREATE TABLE idempotency_keys (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        run INTEGER NOT NULL REFERENCES runs (key),
        PRIMARY KEY (tenant, key)
    ) WITHOUT ROWID
    ;
INSERT INTO "idempotency_keys" VALUES('local','key_1',1);
CREATE TABLE run_views (
        run INTEGER PRIMARY KEY REFERENCES runs (key),
        view TEXT NOT NULL
    );
INSERT INTO "run_views" VALUES(1,'{"id":"run_ended","session_id":"run_ended","parent_run_id":null,"root_run_id":"run_ended","continues":null,"binding":"reviewed","profile":"reviewed","status":"completed","cancel_requested":false,"created_at":"2026-11-30T12:00:00.000000Z","started_at":null,"deadline_at":null,"ended_at":"2026-11-30T12:00:00.000000Z","workspace":{"ref":"app","node_id":null,"base":null,"isolation":null,"sandbox":null},"limits":{"wall_clock_ms":3600000,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":200,"max_tool_calls_per_round":16,"max_corrections":2,"max_revisions":1,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":8,"tool_timeout_ms":120000,"max_tool_output_bytes":16384,"working_limit_ms":null},"metadata":{},"terminal":{"kind":"completed","class":null,"code":null,"message":null,"stage":null,"limit":null},"output":"Fixed.","review":{"decision":"pass","summary":"","repairs":[],"flags":[],"content_hash":"efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef"},"checks":[{"id":"test","base_exit":1,"exit":0,"ms":400,"gate":"pass","flaky":false}],"patch":{"sha256":"5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","files":2,"insertions":14,"deletions":3,"reviewed":true},"delivery":{"mode":"patch","status":"delivered","ref":null},"usage":{"input_tokens":4800,"output_tokens":320,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":5120,"complete":true,"causes":[],"coverage":{"attempts":0,"reported":0,"refused":0,"interrupted":0,"partial":0,"missing":0,"priced":0,"unpriced":0},"own":{"input_tokens":null,"output_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":null},"subtree":{"input_tokens":null,"output_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"total_tokens":null},"by_stage":{},"by_model":{}},"cost_usd":0.0,"estimated_max_cost_usd":0.0,"cancel":null,"abandoned":[],"queue_position":null}');
INSERT INTO "run_views" VALUES(2,'{"id":"run_queued","session_id":"run_queued","parent_run_id":null,"root_run_id":"run_queued","continues":null,"binding":"reviewed","profile":"reviewed","status":"queued","cancel_requested":false,"created_at":"2026-11-30T12:00:00.000000Z","started_at":null,"deadline_at":null,"ended_at":null,"workspace":{"ref":"app","node_id":null,"base":null,"isolation":null,"sandbox":null},"limits":{"wall_clock_ms":3600000,"max_queue_ms":null,"stage_timeout_ms":null,"max_tool_rounds":200,"max_tool_calls_per_round":16,"max_corrections":2,"max_revisions":1,"max_input_tokens":null,"max_output_tokens":null,"max_total_tokens":null,"max_cost_usd":null,"max_children":8,"tool_timeout_ms":120000,"max_tool_output_bytes":16384,"working_limit_ms":null},"metadata":{},"terminal":null,"output":null,"review":null,"checks":[],"patch":null,"delivery":null,"usage":null,"cost_usd":null,"estimated_max_cost_usd":null,"cancel":null,"abandoned":[],"queue_position":null}');
CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        binding TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('queued', 'planning', 'working', 'reviewing', 'finalizing', 'settling', 'completed', 'failed', 'cancelled', 'indeterminate')),
        created_at TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        epoch TEXT NOT NULL,
        generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
        claimed INTEGER NOT NULL DEFAULT 0 CHECK (claimed IN (0, 1) AND (claimed = 0 OR generation > 0)), parent_id TEXT, key_id TEXT,
        UNIQUE (tenant, id)
    );
INSERT INTO "runs" VALUES(1,'local','run_ended','run_ended','reviewed','completed','2026-11-30T12:00:00.000000Z','fingerprint of Make the failing test pass.','epoch_1',1,1,NULL,NULL);
INSERT INTO "runs" VALUES(2,'local','run_queued','run_queued','reviewed','queued','2026-11-30T12:00:00.000000Z','fingerprint of Make the failing test pass.','epoch_1',0,0,NULL,NULL);
CREATE TABLE tombstones (
        tenant TEXT NOT NULL,
        id TEXT NOT NULL,
        at TEXT NOT NULL,
        "by" TEXT NOT NULL,
        reason TEXT,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID
    ;
CREATE TABLE transcript (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        stage_id TEXT NOT NULL,
        position INTEGER NOT NULL CHECK (position >= 0),
        role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
        body TEXT NOT NULL,
        UNIQUE (run, stage_id, position)
    );
INSERT INTO "transcript" VALUES(1,1,'plan',0,'user','{"text":"The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. "}');
INSERT INTO "transcript" VALUES(2,1,'plan',1,'assistant','{"text":"I look at the files first."}');
INSERT INTO "transcript" VALUES(3,1,'work-1',0,'user','{"text":"The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. "}');
INSERT INTO "transcript" VALUES(4,1,'work-1',1,'assistant','{"text":"I look at the files first."}');
INSERT INTO "transcript" VALUES(5,1,'work-1',2,'user','{"text":"12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. 12 passed in 0.40 s. "}');
INSERT INTO "transcript" VALUES(6,1,'work-1',3,'assistant','{"text":"All pass now."}');
INSERT INTO "transcript" VALUES(7,1,'review-1',0,'user','{"text":"The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. The request and the brief. "}');
INSERT INTO "transcript" VALUES(8,1,'review-1',1,'assistant','{"text":"I look at the files first."}');
CREATE INDEX runs_by_tenant ON runs (tenant);
CREATE INDEX runs_by_session ON runs (tenant, session_id);
CREATE INDEX runs_queued ON runs (epoch, claimed) WHERE status = 'queued';
CREATE INDEX runs_unfinished ON runs (epoch) WHERE status NOT IN ('completed', 'failed', 'cancelled', 'indeterminate');
CREATE UNIQUE INDEX events_in_order ON events (run, seq);
CREATE UNIQUE INDEX one_decision_per_run ON events (run) WHERE type = 'run.settling';
CREATE UNIQUE INDEX one_delivery_intent_per_run ON events (run) WHERE type = 'delivery.intent';
CREATE UNIQUE INDEX one_terminal_per_run ON events (run) WHERE type IN ('run.cancelled', 'run.completed', 'run.failed', 'run.indeterminate');
CREATE UNIQUE INDEX one_admission_per_run ON events (run) WHERE type = 'run.queued';
CREATE INDEX history_by_run ON history (run);
CREATE UNIQUE INDEX one_living_key_per_name ON api_keys (tenant, name) WHERE revoked_at IS NULL;
CREATE INDEX runs_by_parent ON runs (tenant, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_by_key_id ON runs (tenant, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX audit_by_tenant ON audit (tenant);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE (ABORT, 'the audit record is only added to'); END;
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
    WHEN julianday (OLD.at) > julianday ((SELECT at FROM audit ORDER BY id DESC LIMIT 1)) - 30
    BEGIN SELECT RAISE (ABORT, 'what is on the audit record stays there for thirty days at least'); END;
DELETE FROM "sqlite_sequence";
COMMIT;
