// A policy in C++ without any library: `safecritic export RUN --c policy.h`, then
//
//     g++ -O2 -o policy main.cpp && ./policy < observations.txt
//
// Reads what is left of the budget and an observation per line, writes an action per line. It is
// valid C99 too. A fault is answered by holding the last action for at most `kHold` decisions.
#include <stdio.h>

#include "policy.h"

enum { kHold = 5 };

int main(void) {
  double observation[SAFECRITIC_OBSERVATION], action[SAFECRITIC_ACTION] = {0};
  float left;
  int i, fault, held = 0;
  while (scanf("%f", &left) == 1) {
    safecritic_decision decision;
    for (i = 0; i < SAFECRITIC_OBSERVATION; i++)
      if (scanf("%lf", &observation[i]) != 1) return 1;
    fault = safecritic_decide(observation, left, 1, &decision);
    held = fault == SAFECRITIC_OK ? 0 : held + 1;
    for (i = 0; i < SAFECRITIC_ACTION; i++) {
      if (fault == SAFECRITIC_OK) action[i] = decision.action[i];
      if (held > kHold) action[i] = 0.0;
      printf("%.9g ", action[i]);
    }
    if (fault == SAFECRITIC_OK)
      printf("%.9g %.9g %d %d 0\n", decision.q_cost, decision.influence, decision.screened,
             decision.changed);
    else
      printf("nan nan 0 0 %d\n", fault);
  }
  return 0;
}
