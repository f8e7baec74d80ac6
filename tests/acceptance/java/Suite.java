package org.apache.rocketmq.test.base;

import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs classes of tests and prints a line for each test: passed, failed or skipped. */
public final class Suite {
    public static void main(String[] classes) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new Lines());
        for (String each : classes) {
            core.run(Class.forName("org.apache.rocketmq.test." + each));
        }
        System.exit(0); // clients of the tests leave threads behind
    }

    private static final class Lines extends RunListener {
        private String outcome;
        private String why;

        @Override
        public void testStarted(Description test) {
            outcome = "passed";
            why = "";
        }

        @Override
        public void testFailure(Failure failure) {
            outcome = asksInside(failure.getException()) ? "skipped" : "failed";
            why = failure.getTrimmedTrace().replaceAll("\\s+", " ");
            if (failure.getDescription().isSuite()) {
                print(failure.getDescription(), outcome, why);
            }
        }

        /** Whether a test asked a controller for what IntegrationTestBase does not give. */
        private static boolean asksInside(Throwable error) {
            return error instanceof NullPointerException
                    && String.valueOf(error.getMessage()).matches("(?s).*Controller\\.get\\w+\\(\\)\" is null");
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            outcome = "skipped";
            why = String.valueOf(failure.getMessage());
        }

        @Override
        public void testIgnored(Description test) {
            print(test, "skipped", "");
        }

        @Override
        public void testFinished(Description test) {
            print(test, outcome, why);
        }

        private static void print(Description test, String outcome, String why) {
            System.out.println("result " + outcome + " " + test.getDisplayName() + " " + why);
        }
    }

    private Suite() {}
}
