// A producer at full speed whose records are in transactions, with librdkafka,
// for test/bench: the librdkafka of confluent-kafka-go, which is built already.
//
//   transactions BROKER TOPIC SIZE COUNT MS PER FILE
//
// It commits every MS milliseconds, or after PER records if MS is 0. The last line
// of output is the one of rdkafka_performance. FILE, if not "-", gets the time of
// each commit in microseconds: from the call, which first waits for the records of
// the transaction, to the coordinator's answer.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rdkafka.h"

static long delivered, failed;

static void report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
        if (m->err)
                failed++;
        else
                delivered++;
}

static int64_t now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
        char text[512];
        if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) != RD_KAFKA_CONF_OK) {
                fprintf(stderr, "%s\n", text);
                exit(1);
        }
}

static void must(const char *what, rd_kafka_error_t *error) {
        if (!error)
                return;
        fprintf(stderr, "%s: %s\n", what, rd_kafka_error_string(error));
        exit(1);
}

int main(int argc, char **argv) {
        if (argc != 8) {
                fprintf(stderr, "transactions BROKER TOPIC SIZE COUNT MS PER FILE\n");
                return 2;
        }
        const char *topic = argv[2];
        size_t size       = strtoul(argv[3], NULL, 10);
        long count        = strtol(argv[4], NULL, 10);
        int64_t every     = strtol(argv[5], NULL, 10) * 1000;
        long per          = strtol(argv[6], NULL, 10);
        FILE *times       = strcmp(argv[7], "-") ? fopen(argv[7], "w") : NULL;
        char text[512], id[64];

        snprintf(id, sizeof(id), "bench-%d-%" PRId64, (int)getpid(), now());
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "bootstrap.servers", argv[1]);
        set(conf, "transactional.id", id);
        set(conf, "linger.ms", "5");
        rd_kafka_conf_set_dr_msg_cb(conf, report);
        rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
        if (!rk) {
                fprintf(stderr, "%s\n", text);
                return 1;
        }
        must("init", rd_kafka_init_transactions(rk, 30000));
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);

        char *value = malloc(size);
        memset(value, 'x', size);
        int64_t begin = now(), opened = begin;
        long open = 0;
        must("begin", rd_kafka_begin_transaction(rk));
        for (long i = 0; i < count;) {
                if (rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, NULL) == -1) {
                        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                                fprintf(stderr, "produce: %s\n", rd_kafka_err2str(rd_kafka_last_error()));
                                return 1;
                        }
                        rd_kafka_poll(rk, 10);
                } else {
                        i++;
                        open++;
                }
                if (i % 256 == 0)
                        rd_kafka_poll(rk, 0);
                if (i == count || (every ? i % 64 == 0 && now() - opened >= every : open >= per)) {
                        int64_t before = now();
                        must("commit", rd_kafka_commit_transaction(rk, 60000));
                        opened = now();
                        open   = 0;
                        if (times)
                                fprintf(times, "%" PRId64 "\n", opened - before);
                        if (i < count)
                                must("begin", rd_kafka_begin_transaction(rk));
                }
        }
        int64_t took = (now() - begin) / 1000;
        printf("%% %ld messages produced (%ld bytes), %ld delivered (offset 0, %ld failed) in %" PRId64 "ms\n", count, count * (long)size, delivered, failed, took);
        if (times && fclose(times) != 0)
                return 1;
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        return 0;
}
