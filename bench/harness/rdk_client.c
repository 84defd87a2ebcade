/* A bare librdkafka client, as fast as the library goes, so that a benchmark measures the broker and not the client.
 *
 *   cc -O2 -o rdk_client rdk_client.c -lrdkafka        (Debian: librdkafka-dev)
 *   rdk_client -P -b HOST:PORT -t TOPIC -c COUNT [-p PARTITION] [-s SIZE] [-X property=value]...
 *   rdk_client -C -b HOST:PORT -t TOPIC -c COUNT [-p PARTITION] [-o OFFSET] [-X property=value]...
 *
 * Without -p a producer spreads over all partitions and a consumer reads partition 0, from the beginning unless -o says
 * where; below 0 it counts from the end.  The only line it prints is
 * rate=MESSAGES_PER_SECOND ok=COUNT failed=COUNT; a producer's clock stops at its last delivery report, a consumer's
 * runs from its first message to its last. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 10000, PATIENCE_MS = 30000 };

struct job {
    const char *topic;
    int partition;
    long count;
    size_t size;
    int64_t offset;
};

static long ok, failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "rdk_client: %s\n", what);
    exit(1);
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (message->err)
        failed++;
    else
        ok++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK)
        die(error);
}

static void set_pair(rd_kafka_conf_t *conf, char *pair) {
    char *equals = strchr(pair, '=');
    if (!equals)
        die("-X wants property=value");
    *equals = 0;
    set(conf, pair, equals + 1);
}

/* Return the seconds from the first call to the last delivery report. */
static double produce(rd_kafka_t *rk, const struct job *job) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, job->topic, NULL);
    char *body = malloc(job->size);
    memset(body, 'x', job->size);
    double start = now();
    for (long i = 0; i < job->count; i++) {
        while (rd_kafka_produce(topic, job->partition, RD_KAFKA_MSG_F_COPY, body, job->size, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                die(rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(rk, 1);
        }
        if (i % 1000 == 0)
            rd_kafka_poll(rk, 0);
    }
    while (ok + failed < job->count)
        rd_kafka_poll(rk, 10);
    return now() - start;
}

/* Return the seconds from the first message to the last. */
static double consume(rd_kafka_t *rk, const struct job *job) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    int partition = job->partition < 0 ? 0 : job->partition;
    int64_t offset = job->offset < 0 ? RD_KAFKA_OFFSET_TAIL(-job->offset) : job->offset;
    rd_kafka_topic_partition_list_add(list, job->topic, partition)->offset = offset;
    rd_kafka_assign(rk, list);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    rd_kafka_message_t **messages = malloc(BATCH * sizeof *messages);
    double start = 0;
    while (ok < job->count) {
        /* No more than are due: the library waits until it has as many as asked for. The first one starts the clock. */
        long due = job->count - ok, wanted = !start ? 1 : due < BATCH ? due : BATCH;
        ssize_t got = rd_kafka_consume_batch_queue(queue, PATIENCE_MS, messages, wanted);
        if (got <= 0)
            die("no message for 30 s");
        if (!start)
            start = now();
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err)
                failed++;
            else
                ok++;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return now() - start;
}

int main(int argc, char **argv) {
    const char *usage = "usage: see the head of rdk_client.c";
    struct job job = {NULL, RD_KAFKA_PARTITION_UA, 0, 200, 0};
    int option, is_producer = -1;
    char error[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "queue.buffering.max.messages", "500000");
    set(conf, "queued.min.messages", "1000000");
    while ((option = getopt(argc, argv, "PCb:t:p:c:s:o:X:")) != -1)
        switch (option) {
        case 'P': is_producer = 1; break;
        case 'C': is_producer = 0; break;
        case 'b': set(conf, "bootstrap.servers", optarg); break;
        case 't': job.topic = optarg; break;
        case 'p': job.partition = atoi(optarg); break;
        case 'c': job.count = atol(optarg); break;
        case 's': job.size = (size_t)atol(optarg); break;
        case 'o': job.offset = atoll(optarg); break;
        case 'X': set_pair(conf, optarg); break;
        default: die(usage);
        }
    if (is_producer < 0 || !job.topic || job.count <= 0)
        die(usage);
    if (is_producer) {
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    } else {
        set(conf, "group.id", "rdk_client");
        set(conf, "enable.auto.commit", "false");
    }
    rd_kafka_t *rk = rd_kafka_new(is_producer ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf, error, sizeof error);
    if (!rk)
        die(error);
    double seconds = is_producer ? produce(rk, &job) : consume(rk, &job);
    printf("rate=%.0f ok=%ld failed=%ld\n", ok / seconds, ok, failed);
    fflush(stdout);
    _exit(failed ? 1 : 0); /* no slow teardown inside the measured process */
}
