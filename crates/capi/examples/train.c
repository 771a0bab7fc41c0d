/* A trainer's loop in C: noise on two tensors, a checkpoint half-way, and a second process that goes on from it.
 *
 *     cc train.c -I../include -L../../../target/release -lcorrnoise_capi -o train
 *     ./train FOLDER          FOLDER holds plan.json; noise.key and noise.safetensors are made there
 *     ./train FOLDER exact    continues bit for bit, for tests
 *
 * Appends every noisy gradient to FOLDER/gradients.bin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* [guide] */
#include <corrnoise.h>

/* What every call returns; the message says what was met and what was expected. */
static void check(corrnoise_status status) {
    if (status != CORRNOISE_STATUS_OK) {
        fprintf(stderr, "corrnoise: %s\n", corrnoise_last_error_message());
        exit(1);
    }
}

/* The model's tensors in a stable order: names and lengths are what a checkpoint is bound to. */
static corrnoise_shard *model(void) {
    static const char *const names[] = {"weight", "bias"};
    static const uint64_t lengths[] = {700, 10};
    corrnoise_shard *shard;
    check(corrnoise_shard_tensors(names, lengths, 2, &shard));
    return shard;
}

/* A new run, or the one that the checkpoint belongs to. */
static corrnoise_mechanism *start(const corrnoise_plan *plan, const char *key_file, const char *checkpoint,
                                  corrnoise_resume_mode mode) {
    corrnoise_shard *shard = model();
    corrnoise_key *key;
    corrnoise_mechanism *noise;
    if (checkpoint == NULL) {
        check(corrnoise_key_create_file(key_file, &key)); /* 32 bytes from the operating system */
        check(corrnoise_mechanism_new(plan, key, shard, NULL, &noise));
    } else {
        check(corrnoise_key_from_file(key_file, "", &key));
        check(corrnoise_mechanism_resume(plan, key, shard, NULL, &checkpoint, 1, mode, NULL, &noise));
    }
    corrnoise_key_free(key);
    corrnoise_shard_free(shard);
    return noise;
}

/* In the loop: clip, sum, then one call for all tensors. */
static void step(corrnoise_mechanism *noise, float *weight, float *bias) {
    float *const gradients[] = {weight, bias};
    static const size_t lengths[] = {700, 10};
    check(corrnoise_mechanism_unchecked_batch(noise)); /* you vouch: these are sums over the plan's batch of this step */
    check(corrnoise_add_to_f32(noise, gradients, lengths, 2));
}
/* [/guide] */

static void train(corrnoise_mechanism *noise, uint64_t end, const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/gradients.bin", folder);
    FILE *file = fopen(path, "ab");
    uint64_t t;
    for (check(corrnoise_mechanism_next_step(noise, &t)); t < end;
         check(corrnoise_mechanism_next_step(noise, &t))) {
        float weight[700], bias[10];
        for (int i = 0; i < 700; i++) weight[i] = (float)i / 64;
        for (int i = 0; i < 10; i++) bias[i] = -(float)i;
        step(noise, weight, bias);
        fwrite(weight, sizeof weight, 1, file);
        fwrite(bias, sizeof bias, 1, file);
    }
    if (fclose(file) != 0) exit(2);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    const char *folder = arguments[1];
    int exact = count > 2 && strcmp(arguments[2], "exact") == 0;
    char path[4096], key_file[4096], checkpoint[4096], fingerprint[65];
    snprintf(path, sizeof path, "%s/plan.json", folder);
    snprintf(key_file, sizeof key_file, "%s/noise.key", folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/noise.safetensors", folder);

    corrnoise_plan *plan;
    uint64_t num_steps;
    check(corrnoise_plan_load(path, &plan));
    check(corrnoise_plan_num_steps(plan, &num_steps));
    check(corrnoise_plan_fingerprint(plan, fingerprint, sizeof fingerprint));
    printf("corrnoise %s, noise specification %u, plan %s\n", corrnoise_version(),
           (unsigned)corrnoise_noise_spec_version(), fingerprint);

    corrnoise_mechanism *noise = start(plan, key_file, NULL, CORRNOISE_RESUME_MODE_NEW_INCARNATION);
    train(noise, num_steps / 2, folder);
    check(corrnoise_mechanism_save(noise, checkpoint)); /* as secret as the key */
    corrnoise_mechanism_free(noise);

    noise = start(plan, key_file, checkpoint,
                  exact ? CORRNOISE_RESUME_MODE_EXACT : CORRNOISE_RESUME_MODE_NEW_INCARNATION);
    train(noise, num_steps, folder);
    corrnoise_mechanism_free(noise);
    corrnoise_plan_free(plan);
    return 0;
}
